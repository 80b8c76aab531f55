"use strict";
/* What the pages do in the browser: cells, times, filters, two charts.
   Text from the fleet goes into the document as text (textContent), never as HTML. */
window.fleet = (() => {
  const make = (tag, cls, text) => {
    const node = document.createElement(tag);
    if (cls) node.className = cls;
    if (text !== undefined && text !== null) node.textContent = String(text);
    return node;
  };
  const grids = new Set();

  // Figures and times

  const span = (s) => {
    if (s < 90) return `${Math.round(s)} s`;
    if (s < 5400) return `${Math.round(s / 60)} min`;
    if (s < 129600) return `${(s / 3600).toFixed(1)} h`;
    return `${Math.round(s / 86400)} d`;
  };
  const ago = (ms) => {
    if (ms === null || ms === undefined) return "";
    const s = (Date.now() - ms) / 1000;
    return s < 2 ? "now" : `${span(s)} ago`;
  };
  const until = (ms) => {
    if (ms === null || ms === undefined) return "";
    const s = (ms - Date.now()) / 1000;
    return s > 1 ? `in ${span(s)}` : s > -10 ? "soon" : `${span(-s)} late`; // a guess that has passed
  };
  const whole = { hourCycle: "h23" };
  const at = (ms) => (ms ? new Date(ms).toLocaleString([], whole) : "");
  const clock = (ms) => new Date(ms).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", ...whole });
  const exact = (ms) => {
    const today = new Date(ms).toDateString() === new Date().toDateString();
    return today ? new Date(ms).toLocaleTimeString([], whole) : at(ms);
  };
  const since = (ms) => `${exact(ms)} (${ago(ms)})`;
  const gib = (bytes) => (bytes / 2 ** 30).toFixed(bytes < 10 * 2 ** 30 ? 1 : 0);
  const figure = (value) =>
    value === null || value === undefined ? "" : Math.abs(value) >= 1e5 || (value !== 0 && Math.abs(value) < 1e-3)
      ? value.toExponential(2) : value.toPrecision(4);

  // Cells

  const link = (path, text) => {
    const node = make("a", "", text);
    node.href = path;
    node.tabIndex = -1; // its cell has the focus, and Enter follows it
    return node;
  };
  const bar = (share, text, title, high) => {
    const node = make("span", "bar");
    const track = make("span", "track");
    const fill = make("span", high ? "fill high" : "fill");
    fill.style.width = `${Math.round(Math.max(0, Math.min(1, share)) * 100)}%`;
    track.append(fill);
    track.setAttribute("aria-hidden", "true");
    node.append(track, make("span", "text", text));
    if (title) node.title = title;
    return node;
  };
  const dim = (text) => make("span", "dim", text);
  const word = (text) => (/^[a-z-]+$/.test(text) ? text : "unknown");
  const state = (text) => make("span", `state ${word(text)}`, text);
  const NO_HOST = "no host can run it";
  const cells = {
    job: (p) => {
      const node = link(`/job/${encodeURIComponent(p.data.id)}`, p.data.name);
      node.title = p.data.name; // it may be too long for its column
      if (p.data.planned !== false) return node;
      const both = make("span", "orphaned");
      both.append(dim("orphaned "), node);
      both.title = "no longer in the manifest";
      return both;
    },
    host: (p) => (p.value ? link(`/host/${encodeURIComponent(p.value)}`, p.value) : ""),
    current: (p) => {
      const idle = p.data.ending ? "ending" : "idle";
      if (!p.data.job_id) return p.data.jobs ? dim(`${p.data.jobs} held`) : dim(p.data.online ? idle : "");
      const node = link(`/job/${encodeURIComponent(p.data.job_id)}`, p.data.job);
      if (p.data.jobs < 2) return node;
      const both = make("span");
      both.append(node, dim(`  and ${p.data.jobs - 1} more`));
      return both;
    },
    state: (p) => {
      const node = p.data.chance ? make("span", "state tone-warn", "below chance") : state(p.value);
      if (p.data.chance) node.title = `${p.value}, ${p.data.chance}`;
      // Where the table is too narrow for the column of progress.
      if (p.data.state === "running" && (p.data.share ?? null) !== null) node.append(make("span", "narrow", `${Math.round(p.data.share * 100)} %`));
      if (p.data.error) node.title = p.data.error;
      if (p.data.unplaceable) node.append(make("span", "hopeless bad", NO_HOST));
      if (p.data.awaits) {
        node.append(make("span", "hopeless", p.data.awaits));
        node.title = p.data.waits; // the hosts may be many
      }
      if (p.data.planned === false) node.title = "no longer in the manifest";
      return node;
    },
    fate: (p) => state(p.value),
    condition: (p) => {
      const node = make("span", `state tone-${p.data.tone}`, p.data.state);
      if (p.data.barred) node.title = p.data.barred;
      return node;
    },
    share: (p) => {
      const { share, epoch, phase } = p.data;
      if (p.data.state === "completed" || (share === null && !phase)) return "";
      const more = phase && phase !== "train" ? phase : epoch;
      if (share === null) return dim(more || "");
      return bar(share, `${Math.round(share * 100)} %`, more);
    },
    held: (p) => (p.data.share === null ? "" : bar(p.data.share, `${Math.round(p.data.share * 100)} %`)),
    percent: (p) => (p.value === null ? "" : bar(p.value / 100, `${Math.round(p.value)} %`)),
    ram: (p) => memory(p.data.ram_used, p.data.ram_total),
    vram: (p) => memory(p.data.vram_used, p.data.vram_total),
    power: (p) => (p.value === null ? "" : `${Math.round(p.value)} W`),
    ago: (p) => timed(ago(p.value), p.value),
    until: (p) => timed(until(p.value), p.value),
    took: (p) => {
      const { started } = p.data;
      const ms = tookMs(p.data);
      if (ms === null) return "";
      return started ? timed(span(ms / 1000), started, "since ") : span(ms / 1000);
    },
    loss: (p) => figure(p.value),
    metric: (p) => {
      if (p.value === null) return "";
      const node = make("span", p.data.chance ? "bad" : "", p.data.score);
      if (p.data.interval) node.append(dim(`  ${p.data.interval.replace(" to ", "–")}`));
      node.title = p.data.metric + (p.data.interval ? `, 95 % interval ${p.data.interval}` : "");
      return node;
    },
  };
  const tookMs = ({ started, finished, ran, state }) => {
    if (!started) return ran ?? null;
    const end = finished ?? (state === "running" ? Date.now() : null);
    return end === null ? null : ran ?? Math.max(0, end - started);
  };
  const timed = (text, ms, before = "") => {
    if (!text) return "";
    const node = make("time", "", text);
    node.dateTime = new Date(ms).toISOString();
    node.title = before + at(ms);
    return node;
  };
  const memory = (used, total) => {
    if (total === null) return "";
    if (used === null) return dim(`of ${gib(total)}`);
    const node = bar(used / total, `${gib(used)}/${gib(total)}`, `${gib(used)} of ${gib(total)} GiB used`, used / total > 0.92);
    node.classList.add("of");
    return node;
  };

  const inOrder = new Intl.Collator("en", { numeric: true }).compare; // pc-2 before pc-10
  const nullsLast = (a, b, _a, _b, isDescending) => {
    if ((a ?? "") === "" || (b ?? "") === "") {
      const order = ((a ?? "") === "" ? 1 : 0) - ((b ?? "") === "" ? 1 : 0);
      return isDescending ? -order : order;
    }
    return typeof a === "string" && typeof b === "string" ? inOrder(a, b) : a < b ? -1 : a > b ? 1 : 0;
  };
  const byTook = (_a, _b, a, b, isDescending) => nullsLast(tookMs(a.data), tookMs(b.data), a, b, isDescending);
  /* What runs, what waits, next to be claimed first, and what is over, newest first. */
  const ACTIVE = ["running", "claimed", "pending"];
  const byActivity = (_a, _b, { data: a }, { data: b }) => {
    const rank = (row) => (ACTIVE.indexOf(row.state) + ACTIVE.length + 1) % (ACTIVE.length + 1);
    const order = rank(a) - rank(b);
    if (order) return order;
    if (a.state === "pending") return b.priority - a.priority || a.created - b.created || nullsLast(a.name, b.name);
    return ACTIVE.includes(a.state) ? a.started - b.started : b.finished - a.finished;
  };

  // Grids

  const fit = (api) => {
    const columns = api.getColumns() ?? [];
    const root = document.getElementById(api.getGridOption("context").element);
    const width = root ? root.clientWidth : window.innerWidth;
    if (!width) return;
    const hide = columns.filter((c) => (c.getColDef().context?.from ?? 0) > width && c.isVisible());
    const show = columns.filter((c) => (c.getColDef().context?.from ?? 0) <= width && !c.isVisible());
    if (hide.length) api.setColumnsVisible(hide, false);
    if (show.length) api.setColumnsVisible(show, true);
  };
  /* A table announces that it is empty, or asks, before it has its rows, and leaves that in its live region. */
  const hush = (api) => {
    if (api.isDestroyed() || !api.getDisplayedRowCount()) return;
    const root = document.getElementById(api.getGridOption("context").element);
    const { noRowsToShow, loadingOoo = noRowsToShow } = api.getGridOption("localeText");
    for (const node of root?.querySelectorAll(".ag-aria-description-container") ?? []) {
      if (node.textContent.includes(noRowsToShow) || node.textContent.includes(loadingOoo)) node.textContent = "";
    }
  };
  const changed = (api) => {
    document.getElementById(api.getGridOption("context").element)?.style.setProperty("--rows", api.getDisplayedRowCount());
    if (document.getElementById("shown-jobs")) tell(api);
    hush(api);
  };
  const ready = (event) => {
    const { label, element } = event.context;
    const root = document.getElementById(element);
    root?.querySelector('[role="grid"], [role="treegrid"]')?.setAttribute("aria-label", label);
    grids.add(event.api);
    fit(event.api);
    for (const node of root?.querySelectorAll(".ag-aria-description-container") ?? [])
      new MutationObserver(() => hush(event.api)).observe(node, { childList: true });
    root?.setAttribute("data-ready", "1");
  };
  const open = (event) => {
    const link = event.event?.target?.querySelector?.("a");
    if (event.event?.key === "Enter" && link) link.click();
  };
  /* Tab leaves a table: the arrow keys lead through it, and a thousand rows would be a long way out. */
  const leave = (event) => {
    const root = document.getElementById(event.context.element);
    const stops = [...(root?.querySelectorAll('[tabindex="0"]') ?? [])];
    for (const node of stops) node.tabIndex = -1;
    setTimeout(() => { for (const node of stops) node.tabIndex = 0; });
    return false; // the browser goes on to the next thing, which is outside
  };
  const tellTimes = () => {
    for (const node of document.querySelectorAll("time[data-ms]")) {
      const ms = Number(node.dataset.ms);
      const text = node.dataset.ahead ? until(ms) : node.dataset.since ? since(ms) : node.dataset.exact ? exact(ms) : ago(ms);
      if (node.textContent !== text) node.textContent = text;
      if (!node.title) node.title = at(ms);
    }
  };
  const later = () => {
    for (const api of grids) {
      if (api.isDestroyed()) grids.delete(api);
      else {
        const columns = api.getColumns().filter((c) => c.getColDef().context?.time).map((c) => c.getColId());
        if (columns.length) api.refreshCells({ columns, force: true });
      }
    }
    tellTimes();
  };
  setInterval(later, 5000);

  // The filters of the page of jobs

  const asked = new URLSearchParams(location.pathname === "/jobs" ? location.search : "");
  let wanted = { states: asked.getAll("state") };
  for (const name of ["model", "mode", "host", "text"]) wanted[name] = (asked.get(name) ?? "").slice(0, 100);
  const passes = (node) => {
    const row = node.data;
    const isOf = (state) => (state === "unplaceable" ? row.unplaceable : row.state === state);
    if (wanted.states.length && !wanted.states.some(isOf)) return false;
    if (wanted.model && row.model !== wanted.model) return false;
    if (wanted.mode && row.mode !== wanted.mode) return false;
    if (wanted.host && row.host !== wanted.host) return false;
    if (!wanted.text) return true;
    const words = wanted.text.toLowerCase().split(/\s+/).filter(Boolean);
    const all = `${row.name} ${row.model} ${row.mode} ${row.state} ${row.host} ${row.id} ${row.error} ${row.unplaceable ? NO_HOST : ""} ${row.waits} ${row.chance}`.toLowerCase();
    return words.every((one) => all.includes(one));
  };
  const isFiltered = () =>
    wanted.states.length > 0 || Boolean(wanted.model || wanted.mode || wanted.host || wanted.text);
  const tell = (api) => {
    const shown = api.getDisplayedRowCount();
    let all = 0;
    api.forEachNode(() => (all += 1));
    const node = document.getElementById("shown-jobs");
    const jobs = all === 1 ? "1 job" : `${all} jobs`;
    const text = shown === all ? jobs : `${shown} of ${jobs}`;
    if (node && node.textContent !== text) node.textContent = text;
    if (all) shown ? api.hideOverlay() : api.showNoRowsOverlay(); // AG Grid says so of no rows at all alone
  };
  const filter = (given) => {
    wanted = { ...wanted, ...given };
    for (const api of grids) if (!api.isDestroyed()) api.onFilterChanged();
    const query = new URLSearchParams();
    for (const one of wanted.states) query.append("state", one);
    for (const name of ["model", "mode", "host", "text"]) if (wanted[name]) query.set(name, wanted[name]);
    const text = query.toString();
    history.replaceState(null, "", text ? `?${text}` : location.pathname);
  };
  const onlyHeld = (node) => node.data.state === "running" || node.data.state === "claimed";

  // Light, dark, or as the system has it

  const modes = { auto: "as the system", light: "light", dark: "dark" };
  const themeOf = () => {
    try { return modes[localStorage.getItem("fleet-theme")] ? localStorage.getItem("fleet-theme") : "auto"; }
    catch { return "auto"; }
  };
  const theme = (name) => {
    try { localStorage.setItem("fleet-theme", name); } catch { /* a private window */ }
    Quasar.Dark.set(name === "auto" ? "auto" : name === "dark");
    const scheme = document.getElementById("nicegui-color-scheme");
    scheme?.setAttribute("content", name === "auto" ? "light dark" : name);
    const button = document.getElementById("theme");
    if (button) {
      button.textContent = { auto: "◐", light: "○", dark: "●" }[name];
      button.setAttribute("aria-label", `colours: ${modes[name]}; press to change`);
      button.title = `colours: ${modes[name]}`;
    }
  };
  // Before the scripts are there that know of colours: no flash of light in a dark room.
  const early = () => {
    const name = themeOf();
    const dark = name === "dark" || (name === "auto" && matchMedia("(prefers-color-scheme: dark)").matches);
    document.body.classList.add(dark ? "body--dark" : "body--light");
  };
  const nextTheme = () => theme({ auto: "light", light: "dark", dark: "auto" }[themeOf()]);

  // Charts

  const axis = {
    axisLine: { lineStyle: { color: "var(--line)" } }, axisTick: { lineStyle: { color: "var(--line)" } },
    axisLabel: { color: "var(--dim)", hideOverlap: true }, splitLine: { lineStyle: { color: "var(--line)", width: 0.6 } },
    nameTextStyle: { color: "var(--dim)" },
  };
  const tooltip = {
    backgroundColor: "var(--raised)", borderColor: "var(--line)", confine: true, appendTo: "body",
    textStyle: { color: "var(--ink)" },
  };
  const swatch = (one) => {
    const node = make("i", "swatch");
    node.style.background = one.color;
    return node;
  };
  const colour = (index) => `var(--series-${index % 8})`;
  // A piece of each line, as it is drawn: who sees no colours goes by the dashes.
  const lineLegend = { itemWidth: 24, itemHeight: 10, itemStyle: { opacity: 0 }, lineStyle: { width: 2 } };
  const dash = (index) => ["solid", [6, 3], [2, 2]][Math.floor(index / 8) % 3];
  const whenReady = (id, act, part = "chart", tries = 200) => {
    const found = window.getElement?.(id)?.[part];
    if (found) act(found);
    else if (tries) setTimeout(() => whenReady(id, act, part, tries - 1), 25);
  };

  /* Curves: by chart a map from job to its points; `parts` are "val", "train" or both. */
  const curves = new Map();
  const unlike = (jobs) => {
    const counts = jobs.map((job) => job.epochs).filter(Boolean);
    return counts.length > 1 && counts.length === jobs.length && Math.max(...counts) > 5 * Math.min(...counts);
  };
  const drawCurves = (id) => {
    const it = curves.get(id);
    it.due = false;
    whenReady(id, (chart) => {
      const series = [];
      const jobs = [...it.jobs.values()].filter((job) => !it.match || it.match(job));
      const share = it.across === "share" || (!it.across && unlike(jobs));
      for (const job of jobs) {
        if (share && !job.epochs) continue;
        for (const part of it.parts) {
          const pick = part === "val" ? 2 : 1;
          let points = job.points.filter((p) => p[pick] !== null).map((p) => [p[0], p[pick]]);
          if (!points.length && it.parts.length === 1) points = job.points.filter((p) => p[3 - pick] !== null).map((p) => [p[0], p[3 - pick]]);
          if (it.log) points = points.filter((p) => p[1] > 0);
          if (share) points = points.map((p) => [(100 * p[0]) / job.epochs, p[1], p[0]]);
          series.push({
            id: `${job.id} ${part}`, name: it.parts.length > 1 ? { val: "validation", train: "training" }[part] : job.name,
            type: "line", data: points, showSymbol: points.length < 2, symbolSize: 4, sampling: "lttb",
            lineStyle: { width: 1.6, type: it.parts.length > 1 ? (part === "train" ? [6, 3] : "solid") : dash(job.order), color: colour(it.parts.length > 1 ? (part === "val" ? 1 : 0) : job.order) },
            itemStyle: { color: colour(it.parts.length > 1 ? (part === "val" ? 1 : 0) : job.order) },
            emphasis: { disabled: true },
          });
        }
      }
      chart.setOption({
        animation: false, textStyle: { fontFamily: "system-ui, sans-serif" },
        aria: { enabled: true, label: { description: it.label } },
        grid: { left: 52, right: 18, top: 16, bottom: series.length > 1 ? 66 : 44 },
        xAxis: { type: "value", name: share ? "share of the epochs, in percent" : "epoch", nameLocation: "middle", nameGap: 24, minInterval: 1, min: share ? 0 : "dataMin", max: share ? 100 : "dataMax", ...axis, splitLine: { show: false } },
        yAxis: { type: it.log ? "log" : "value", scale: true, ...axis },
        legend: { show: series.length > 1, type: "scroll", bottom: 2, ...lineLegend, padding: 5, textStyle: { color: "var(--ink)" }, pageTextStyle: { color: "var(--dim)" }, pageIconColor: "var(--accent)", pageIconInactiveColor: "var(--line)" },
        tooltip: { ...tooltip, trigger: "axis", axisPointer: { lineStyle: { color: "var(--dim)" } }, formatter: (found) => {
          const box = make("div", "tip");
          const where = found[0]?.axisValue ?? "";
          box.append(make("b", "", share ? `${Math.round(where)} % of the epochs` : `epoch ${where}`));
          for (const one of found.slice(0, 12)) {
            const row = make("div", "row");
            row.append(swatch(one), make("span", "grow", one.seriesName), make("span", "", figure(one.value[1])));
            box.append(row);
          }
          if (found.length > 12) box.append(make("div", "dim", `and ${found.length - 12} more`));
          return box;
        } },
        series,
      }, { replaceMerge: ["series"] });
      const root = document.getElementById(`c${id}`);
      root?.setAttribute("data-series", String(series.length));
      root?.setAttribute("data-across", share ? "share" : "epoch");
      const isSought = it.jobs.size > 0 && !jobs.length;
      if (series.length) root?.removeAttribute("data-none");
      else root?.setAttribute("data-none", isSought ? "no job fits what is searched for" : "there are no losses to draw");
    });
  };
  const later2 = (map, id, draw, wait) => {
    const it = map.get(id);
    if (!it.due) { it.due = true; setTimeout(() => draw(id), wait); }
  };
  const feedCurves = (id, news) => {
    const it = curves.get(id) ?? { jobs: new Map(), parts: ["val"], order: 0, label: "", due: false };
    curves.set(id, it);
    if (news.parts) it.parts = news.parts;
    if (news.log !== undefined) it.log = news.log;
    if (news.across !== undefined) it.across = news.across;
    if (news.label) it.label = news.label;
    if (news.match) {
      const { model, text } = news.match;
      it.match = (job) => (!model || job.model === model) && (!text || job.name.toLowerCase().includes(text.toLowerCase()));
    }
    for (const one of news.jobs ?? []) {
      const job = it.jobs.get(one.id) ?? { ...one, points: [], order: it.order++ };
      job.epochs = one.epochs ?? job.epochs;
      job.points = one.from === null ? one.points : [...job.points.filter((p) => p[0] < one.from), ...one.points];
      it.jobs.set(one.id, job);
    }
    for (const key of news.gone ?? []) it.jobs.delete(key);
    later2(curves, id, drawCurves, 30);
  };

  /* The timeline: one row a host, one bar an attempt. */
  const timelines = new Map();
  const fates = ["completed", "running", "failed", "cancelled", "claimed", "lost", "released"];
  const codes = Object.fromEntries(fates.map((fate, code) => [fate, code]));
  const drawBar = (it) => (params, api) => {
    const start = api.coord([api.value(0), api.value(2)]);
    const end = api.coord([api.value(1), api.value(2)]);
    const height = Math.min(16, Math.max(6, api.size([0, 1])[1] * 0.66));
    const left = Math.max(start[0], params.coordSys.x);
    const right = Math.min(end[0], params.coordSys.x + params.coordSys.width);
    if (right < params.coordSys.x || left > params.coordSys.x + params.coordSys.width) return null;
    const width = Math.max(2, right - left - 1);
    const text = width > 46 ? String(it.shown[api.value(4)]?.name ?? "") : "";
    return {
      type: "rect", shape: { x: left, y: start[1] - height / 2, width, height, r: 2 },
      style: { fill: `var(--${fates[api.value(3)] ?? "cancelled"})` },
      textContent: text ? { type: "text", style: { text, fill: "var(--raised)", fontSize: 11, overflow: "truncate", ellipsis: "…", width: width - 8 } } : undefined,
      textConfig: { position: "insideLeft", distance: 4 },
    };
  };
  /* What is drawn: attempts that have ended, those that run, and of each job the newest if nobody told how it ended. */
  const timelineBars = (it, from, now) => {
    const told = new Set(it.past.map((one) => `${one.id} ${one.attempt}`));
    const newest = [...it.jobs.values()].filter((job) => job.state === "running" || job.state === "claimed" || !told.has(`${job.id} ${job.attempt}`));
    return [...it.past, ...newest].filter((one) => one.host && one.started && trained(one, now) >= from && one.state !== "pending");
  };
  /* One row a host, and one more for each further slot that it has used at the same time. */
  const timelineRows = (hosts, jobs, now) => {
    const slots = new Map(hosts);
    const lanes = new Map(hosts.map(([name]) => [name, [-Infinity]]));
    const lane = new Map();
    for (const job of [...jobs].sort((a, b) => a.started - b.started)) {
      const ends = lanes.get(job.host) ?? lanes.set(job.host, [-Infinity]).get(job.host);
      let at = ends.findIndex((end) => end <= job.started);
      if (at < 0) at = ends.length < (slots.get(job.host) ?? 1) ? ends.length : ends.indexOf(Math.min(...ends));
      ends[at] = trained(job, now);
      lane.set(job, at);
    }
    const names = [...lanes.keys()].sort((a, b) => a.localeCompare(b, "en", { numeric: true }));
    const rows = names.flatMap((name) => lanes.get(name).map((_, at) => `${name} ${at}`)).reverse();
    const index = new Map(rows.map((row, at) => [row, at]));
    return { rows, place: (job) => index.get(`${job.host} ${lane.get(job)}`) };
  };
  /* Where a bar ends: with its trainer, not when that was known. It may have run before we knew it to. */
  const trained = (job, now) => {
    const known = job.finished ?? now;
    return job.ran == null ? known : Math.min(known, job.started + job.ran);
  };
  const rowName = (row) => (row.endsWith(" 0") ? row.slice(0, -2) : "");
  /* The same attempts in a table, for who does not see the bars, or has no mouse to press them. */
  const attemptId = (p) => `${p.data.id} ${p.data.attempt}`;
  const listAttempts = (it) => whenReady(it.table, (api) => {
    // One that was given up and is there again is there once, as it is now.
    const rows = [...new Map(it.shown.map((one) => [attemptId({ data: one }), one])).values()];
    const isKnown = rows.length === it.listed.length && rows.every((row, at) => row === it.listed[at]);
    if (api.isDestroyed()) return;
    if (!isKnown) api.setGridOption("rowData", rows);
    const asks = !it.told && !rows.length; // that there are none is said once that is known
    if (api.getGridOption("loading") !== asks) api.setGridOption("loading", asks);
    if (isKnown) return;
    it.listed = rows;
    const count = document.getElementById("shown-attempts");
    if (count) count.textContent = ` ${rows.length || "none"}`;
  }, "api");
  const drawTimeline = (id) => {
    const it = timelines.get(id);
    it.due = false;
    const begun = performance.now();
    const now = Date.now();
    const from = it.hours ? now - it.hours * 3600e3 : -Infinity;
    const jobs = timelineBars(it, from, now);
    const { rows, place } = timelineRows(it.hosts, jobs, now);
    it.shown = jobs;
    listAttempts(it);
    const first = jobs.reduce((low, j) => Math.min(low, j.started), now - 60e3);
    const root = document.getElementById(`c${id}`);
    const narrow = (root?.clientWidth ?? 1000) < 600;
    if (root) root.style.height = `${Math.max(260, rows.length * 22 + 110)}px`;
    whenReady(id, (chart) => {
      chart.resize();
      chart.setOption({
        animation: false, textStyle: { fontFamily: "system-ui, sans-serif" },
        aria: { enabled: true, label: { description: `Timeline of ${it.hosts.length} hosts and ${jobs.length} attempts. The table below has each of them.` } },
        grid: { left: narrow ? 92 : 140, right: 18, top: 72, bottom: 12 },
        xAxis: { type: "time", position: "top", min: Math.max(from, first), max: now, ...axis },
        yAxis: { type: "category", data: rows, ...axis, axisTick: { show: false }, axisLabel: { color: "var(--ink)", width: narrow ? 84 : 128, overflow: "truncate", interval: 0, formatter: rowName }, splitLine: { show: true, lineStyle: { color: "var(--line)", width: 0.6 } } },
        dataZoom: [
          { type: "inside", filterMode: "weakFilter", zoomOnMouseWheel: "ctrl", moveOnMouseWheel: false },
          { type: "slider", filterMode: "weakFilter", height: 20, top: 14, borderColor: "var(--line)", fillerColor: "rgba(120,140,170,.22)", handleStyle: { color: "var(--accent)" }, moveHandleStyle: { color: "var(--dim)" }, textStyle: { color: "var(--dim)" }, showDataShadow: false, labelFormatter: clock },
        ],
        tooltip: { ...tooltip, formatter: (one) => {
          const job = it.shown[one.value[4]];
          const box = make("div", "tip");
          if (!job) return box;
          box.append(make("b", "", job.name), make("div", "", `attempt ${job.attempt}, ${job.state} on ${job.host}`));
          box.append(make("div", "dim", `${at(job.started)}, ${span((trained(job, Date.now()) - job.started) / 1000)}`));
          const newest = it.jobs.get(job.id);
          if (newest?.error && newest.attempt === job.attempt) box.append(make("div", "bad", newest.error));
          return box;
        } },
        series: [{
          id: "jobs", type: "custom", renderItem: drawBar(it), clip: true, emphasis: { disabled: true },
          encode: { x: [0, 1], y: 2 },
          data: jobs.map((j, index) => [j.started, trained(j, now), place(j), codes[j.state] ?? 3, index]),
        }],
      });
      if (!it.clicks) {
        it.clicks = true;
        chart.on("click", (event) => {
          const job = it.shown[event.value?.[4]];
          if (job) location.href = `/job/${encodeURIComponent(job.id)}`;
        });
        setInterval(() => drawTimeline(id), 10000);
      }
      root?.setAttribute("data-bars", String(jobs.length));
      it.wait = Math.max(60, 5 * (performance.now() - begun)); // of a fleet that never rests
    });
  };
  const feedTimeline = (id, news) => {
    const it = timelines.get(id) ?? { jobs: new Map(), past: [], hosts: [], shown: [], listed: [], told: false, table: 0, hours: 0, due: false, wait: 60 };
    timelines.set(id, it);
    if (news.table) it.table = news.table;
    if (news.told) it.told = true;
    if (news.hours !== undefined) it.hours = news.hours;
    if (news.hosts) it.hosts = news.hosts;
    for (const job of news.jobs ?? []) it.jobs.set(job.id, job);
    const gone = new Set(news.gone);
    for (const key of gone) it.jobs.delete(key);
    if (gone.size) it.past = it.past.filter((one) => !gone.has(one.id));
    if (news.past) {
      const made = news.past.runs.flatMap(([job, name, runs]) => runs.map(([attempt, host, started, finished, state]) => ({ id: job, name, attempt, host, started, finished, state })));
      it.past = [...(news.past.afresh ? [] : it.past), ...made].slice(-news.past.most);
    }
    later2(timelines, id, drawTimeline, it.wait);
  };

  /* A host's heartbeats: a few lines over time, each of [ms, value]. */
  const beats = new Map();
  const drawBeats = (id) => {
    const it = beats.get(id);
    it.due = false;
    whenReady(id, (chart) => chart.setOption({
      animation: false, textStyle: { fontFamily: "system-ui, sans-serif" },
      aria: { enabled: true, label: { description: "CPU, memory and GPU use of this host over the last heartbeats, in percent" } },
      grid: { left: 40, right: 18, top: 30, bottom: 26 },
      legend: { top: 0, ...lineLegend, textStyle: { color: "var(--ink)" } },
      // A host that was heard once, and is away, has one point, which alone has no stretch of time.
      xAxis: { type: "time", min: (seen) => Math.min(seen.min, seen.max - 60e3), ...axis, splitLine: { show: false } },
      yAxis: { type: "value", min: 0, max: 100, ...axis, axisLabel: { color: "var(--dim)", formatter: "{value} %" } },
      tooltip: { ...tooltip, trigger: "axis", formatter: (found) => {
        const box = make("div", "tip");
        box.append(make("b", "", at(found[0]?.value[0])));
        for (const one of found) {
          const row = make("div", "row");
          row.append(swatch(one), make("span", "grow", one.seriesName), make("span", "", `${Math.round(one.value[1])} %`));
          box.append(row);
        }
        return box;
      } },
      series: ["CPU", "RAM", "GPU", "VRAM"].map((name, index) => ({
        id: name, name, type: "line", showSymbol: it.points.length < 2, symbolSize: 5, emphasis: { disabled: true },
        lineStyle: { width: 1.6, type: ["solid", [6, 3], [2, 2], [8, 3, 2, 3]][index], color: colour(index) }, itemStyle: { color: colour(index) },
        data: it.points.filter((p) => p[index + 1] !== null).map((p) => [p[0], p[index + 1]]),
      })).filter((one) => one.data.length),
    }, { replaceMerge: ["series"] }));
    const root = document.getElementById(`c${id}`);
    if (it.points.length) root?.removeAttribute("data-none");
    else root?.setAttribute("data-none", "no heartbeat was heard yet");
  };
  const feedBeats = (id, points) => {
    const it = beats.get(id) ?? { points: [], due: false };
    beats.set(id, it);
    it.points = [...it.points, ...points].slice(-240);
    later2(beats, id, drawBeats, 60);
  };

  // Words that come and go

  const notice = (text, bad) => {
    const box = document.getElementById("notice");
    if (!box) return;
    const node = make("div", bad ? "bad" : "", text);
    box.append(node);
    setTimeout(() => node.remove(), bad ? 12000 : 6000);
  };
  // What is chosen in the open question, by name; and how long it is until tomorrow's eight o'clock.
  const answers = () => {
    const chosen = {};
    for (const one of document.querySelectorAll(".dialog input")) {
      if (one.type === "checkbox") chosen[one.name] = one.checked;
      else if (one.checked) chosen[one.name] = one.value;
    }
    const eight = new Date();
    eight.setDate(eight.getDate() + 1);
    eight.setHours(8, 0, 0, 0);
    return { ...chosen, tomorrow_s: Math.ceil((eight - Date.now()) / 1000) + 1 };
  };
  const log = (id, lines, fresh) => {
    const node = document.getElementById(`c${id}`);
    if (!node) return;
    const end = node.scrollHeight - node.scrollTop - node.clientHeight < 40;
    if (fresh) node.replaceChildren();
    for (const line of lines) node.append(document.createTextNode(`${line}\n`));
    while (node.childNodes.length > 1000) node.firstChild.remove();
    if (end || fresh) node.scrollTop = node.scrollHeight;
  };

  document.addEventListener("DOMContentLoaded", () => {
    const begin = () => {
      if (!window.Quasar || !document.getElementById("theme")) return void setTimeout(begin, 20);
      theme(themeOf());
      document.getElementById("theme").addEventListener("click", nextTheme);
      let due = false;
      new MutationObserver(() => {
        if (due) return;
        due = true;
        requestAnimationFrame(() => { due = false; tellTimes(); });
      }).observe(document.body, { childList: true, subtree: true });
      later();
    };
    begin();
  });

  return { cells, early, nullsLast, byActivity, byTook, attemptId, ready, fit, open, leave, filter, passes, isFiltered, onlyHeld, changed, feedCurves, feedTimeline, feedBeats, notice, answers, log, ago, at };
})();
