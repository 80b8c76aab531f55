"use strict";
/* The tables: cells, orders, keys, and the filters of the page of jobs. */
(() => {
  const { make, span, figure, at, moment } = fleet;

  // Cells

  const link = (path, text) => {
    const node = make("a", "", text);
    node.href = path;
    node.tabIndex = -1; // its cell has the focus, and Enter follows it
    return node;
  };
  const jobLink = (id, name) => link(`/job/${encodeURIComponent(id)}`, name);
  const dim = (text) => make("span", "dim", text);
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
  const percent = (share) => `${Math.round(share * 100)} %`;
  const gib = (bytes) => (bytes / 2 ** 30).toFixed(bytes < 10 * 2 ** 30 ? 1 : 0);
  const size = (bytes) => {
    const units = ["B", "KiB", "MiB", "GiB", "TiB"];
    const at = Math.min(Math.floor(Math.log2(Math.max(1, bytes)) / 10), units.length - 1);
    return `${(bytes / 1024 ** at).toFixed(at && 1)} ${units[at]}`;
  };
  const memory = ({ data, colDef: { colId } }) => {
    const [used, total] = [data[`${colId}_used`], data[`${colId}_total`]];
    if (total === null) return "";
    if (used === null) return dim(`of ${gib(total)}`);
    const text = `${gib(used)}/${gib(total)}`;
    const node = bar(used / total, text, `${gib(used)} of ${gib(total)} GiB used`, used / total > 0.92);
    node.classList.add("of");
    return node;
  };
  const NO_HOST = "no host can run it";
  const cells = {
    job: (p) => {
      const node = jobLink(p.data.id, p.data.name);
      node.title = p.data.name; // it may be too long for its column
      if (p.data.planned !== false) return node;
      const both = make("span");
      both.append(node, dim(" orphaned"));
      both.title = "no longer in the manifest";
      return both;
    },
    host: (p) => (p.value ? link(`/host/${encodeURIComponent(p.value)}`, p.value) : ""),
    place: (p) => cells.host(p),
    program: (p) => link(`/program/${encodeURIComponent(p.data.digest)}`, p.value),
    dataset: (p) => link(`/dataset/${encodeURIComponent(p.data.digest)}`, p.value),
    doing: (p) => {
      const { job_id, job, jobs, ending, online } = p.data;
      if (!job_id) return dim(jobs ? `${jobs} held` : ending ? "ending" : online ? "idle" : "");
      const both = make("span");
      both.append(jobLink(job_id, job), jobs < 2 ? "" : dim(`  and ${jobs - 1} more`));
      both.title = p.data.doing;
      return both;
    },
    state: (p) => {
      const { mark, marked, error, share, unplaceable, awaits, waits, planned } = p.data;
      const node = make("span", `state ${p.data.state} ${mark ? "tone-warn" : ""}`, p.value);
      if (mark) node.title = marked;
      // Where the table is too narrow for the column of progress.
      if (mark) node.append(make("span", "narrow", mark));
      if (p.data.state === "running" && (share ?? null) !== null) node.append(make("span", "narrow", percent(share)));
      if (error) node.title = error;
      if (unplaceable) node.append(make("span", "hopeless bad", NO_HOST));
      if (awaits) {
        node.append(make("span", "hopeless", awaits));
        node.title = waits; // the hosts may be many
      }
      if (planned === false) node.title = "no longer in the manifest";
      return node;
    },
    condition: (p) => {
      const node = make("span", `state tone-${p.data.tone}`, p.data.state);
      if (p.data.barred) node.title = p.data.barred;
      return node;
    },
    share: (p) => {
      const { share, epoch, phase, mark, marked } = p.data;
      if (p.data.state === "completed") {
        const node = make("span", "bad", mark || "");
        node.title = marked || "";
        return node;
      }
      const more = phase && phase !== "train" ? phase : epoch;
      return share === null ? dim(phase ? more : "") : bar(share, percent(share), more);
    },
    held: (p) => (p.value === null ? "" : bar(p.value, percent(p.value))),
    percent: (p) => (p.value === null ? "" : bar(p.value / 100, percent(p.value / 100))),
    memory,
    size: (p) => (p.value === null ? "" : size(p.value)),
    load: (p) => (p.value === null ? "" : p.value.toFixed(1)),
    score: (p) => (p.value === null ? "" : p.value.toFixed(3)),
    power: (p) => (p.value === null ? "" : `${Math.round(p.value)} W`),
    ago: (p) => moment(p.value, "ago"),
    left: (p) => moment(p.value, "left"),
    took: (p) => {
      const { started, finished, ran } = p.data;
      const ms = tookMs(p.data);
      if (ms === null) return "";
      if (started && !finished && (ran ?? null) === null) return moment(started, "took", "since ");
      const node = make("span", "", span(ms / 1000));
      if (started) node.title = `since ${at(started)}`;
      return node;
    },
    loss: (p) => figure(p.value),
    metric: (p) => {
      const { metric, score, interval, mark } = p.data;
      if (p.value === null) return "";
      const node = make("span", mark ? "bad" : "", `${metric} ${score}`);
      node.title = metric + (interval ? `, 95 % interval ${interval}` : "");
      return node;
    },
  };
  const tookMs = ({ started, finished, ran, state: of }) => {
    if (!started) return ran ?? null;
    const end = finished ?? (of === "running" ? Date.now() : null);
    return end === null ? null : ran ?? Math.max(0, end - started);
  };

  // Orders

  const inOrder = new Intl.Collator("en", { numeric: true }).compare; // pc-2 before pc-10
  const isNone = (value) => (value ?? "") === "";
  const nullsLast = (a, b, _a, _b, isDescending) => {
    if (isNone(a) || isNone(b)) return (isNone(a) - isNone(b)) * (isDescending ? -1 : 1);
    return typeof a === "string" && typeof b === "string" ? inOrder(a, b) : a - b;
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

  // Tables

  let newest = null; // the table that was made last; the page of jobs has one
  const rootOf = (api) => document.getElementById(api.getGridOption("context").element);
  /* Show the columns that fit: each says from which width on. */
  const fit = (api) => {
    const width = rootOf(api)?.clientWidth;
    if (!width) return;
    const isWide = (column) => column.getColDef().context.from <= width;
    const wrong = (api.getColumns() ?? []).filter((one) => one.isVisible() !== isWide(one));
    api.setColumnsVisible(wrong.filter(isWide), true);
    api.setColumnsVisible(wrong.filter((one) => !isWide(one)), false);
  };
  const changed = (api) => {
    const rows = api.getDisplayedRowCount();
    const root = rootOf(api);
    root?.style.setProperty("--rows", rows);
    root?.setAttribute("data-rows", rows);
    const count = document.getElementById("shown-jobs");
    if (!count) return;
    let all = 0;
    api.forEachNode(() => (all += 1));
    const jobs = all === 1 ? "1 job" : `${all} jobs`;
    const text = rows === all ? jobs : `${rows} of ${jobs}`;
    if (count.textContent !== text) count.textContent = text;
  };
  const ready = ({ api, context }) => {
    const root = rootOf(api);
    root?.querySelector('[role="grid"], [role="treegrid"]')?.setAttribute("aria-label", context.label);
    newest = api;
    fit(api);
    root?.setAttribute("data-ready", "1");
  };
  const open = ({ event }) => {
    if (event?.key === "Enter") event.target?.querySelector?.("a")?.click();
  };
  /* Tab leaves a table: the arrow keys lead through it, and a thousand rows would be a long way out. */
  const leave = ({ api }) => {
    const stops = [...(rootOf(api)?.querySelectorAll('[tabindex="0"]') ?? [])];
    for (const node of stops) node.tabIndex = -1;
    setTimeout(() => { for (const node of stops) node.tabIndex = 0; });
    return false; // the browser goes on to the next thing, which is outside
  };

  // The filters of the page of jobs

  const NAMES = ["model", "mode", "host", "text"];
  const asked = new URLSearchParams(location.pathname === "/jobs" ? location.search : "");
  const wanted = { states: asked.getAll("state") };
  for (const name of NAMES) wanted[name] = (asked.get(name) ?? "").slice(0, 100);
  const isFiltered = () => wanted.states.length > 0 || NAMES.some((name) => wanted[name]);
  const passes = ({ data: row }) => {
    const isOf = (one) => (one === "unplaceable" ? row.unplaceable : row.state === one);
    if (wanted.states.length && !wanted.states.some(isOf)) return false;
    if (["model", "mode", "host"].some((name) => wanted[name] && row[name] !== wanted[name])) return false;
    const words = wanted.text.toLowerCase().split(/\s+/);
    const { name, model, mode, program, host, id, error, waits, marked } = row;
    const all = [name, model, mode, program, row.state, host, id, error, row.unplaceable ? NO_HOST : "", waits, marked];
    return words.every((one) => all.join(" ").toLowerCase().includes(one));
  };
  const filter = (given) => {
    Object.assign(wanted, given);
    newest?.onFilterChanged();
    const query = new URLSearchParams(wanted.states.map((one) => ["state", one]));
    for (const name of NAMES) if (wanted[name]) query.set(name, wanted[name]);
    const text = query.toString();
    history.replaceState(null, "", text ? `?${text}` : location.pathname);
  };

  Object.assign(fleet, { cells, nullsLast, byTook, byActivity, fit, changed, ready, open, leave, isFiltered, passes, filter });
})();
