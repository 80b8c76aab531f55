"use strict";
/* The charts: losses, the timeline, the use of a host. The server feeds each with what is new. */
(() => {
  const { make, span, figure, at, clock } = fleet;

  // What the charts share

  const axis = {
    axisLine: { lineStyle: { color: "var(--line)" } },
    axisTick: { lineStyle: { color: "var(--line)" } },
    axisLabel: { color: "var(--dim)", hideOverlap: true },
    splitLine: { lineStyle: { color: "var(--line)", width: 0.6 } },
    nameTextStyle: { color: "var(--dim)" },
  };
  const tooltip = {
    backgroundColor: "var(--raised)", borderColor: "var(--line)", confine: true, appendTo: "body",
    textStyle: { color: "var(--ink)" },
  };
  // A piece of each line, as it is drawn: who sees no colours goes by the dashes.
  const legend = {
    itemWidth: 24, itemHeight: 10, itemStyle: { opacity: 0 }, lineStyle: { width: 2 },
    textStyle: { color: "var(--ink)" },
  };
  const DASHES = ["solid", [6, 3], [2, 2], [8, 3, 2, 3]];
  const colour = (index) => `var(--series-${index % 8})`;
  const line = (id, name, data, color, type) => ({
    id, name, data, type: "line", showSymbol: data.length < 2, symbolSize: 5, sampling: "lttb",
    lineStyle: { width: 1.6, type, color }, itemStyle: { color }, emphasis: { disabled: true },
  });
  const tip = (title, ...lines) => {
    const box = make("div", "tip");
    box.append(make("b", "", title), ...lines);
    return box;
  };
  const tipLine = (one, text) => {
    const row = make("div", "row");
    const swatch = make("i", "swatch");
    swatch.style.background = one.color;
    row.append(swatch, make("span", "grow", one.seriesName), make("span", "", text));
    return row;
  };
  const show = (chart, description, options) => chart.setOption({
    animation: false,
    textStyle: { fontFamily: "system-ui, sans-serif" },
    aria: { enabled: true, label: { description } },
    ...options,
  }, { replaceMerge: ["series"] });
  /* Say why a chart has nothing to draw. */
  const sayNone = (root, words) => {
    if (words) root?.setAttribute("data-none", words);
    else root?.removeAttribute("data-none");
  };
  const whenReady = (id, act, part = "chart", tries = 200) => {
    const found = window.getElement?.(id)?.[part];
    if (found) act(found);
    else if (tries) setTimeout(() => whenReady(id, act, part, tries - 1), 25);
  };
  /* Return what feeds a kind of chart: `take` keeps the news, `draw` draws soon all that is known. */
  const feeder = (begin, take, draw) => {
    const charts = new Map();
    return (id, news) => {
      const it = charts.get(id) ?? { ...begin(), wait: 60 };
      if (!charts.has(id)) {
        charts.set(id, it);
        it.draw = () => whenReady(id, (chart) => {
          it.due = false;
          draw(it, chart, document.getElementById(`c${id}`));
        });
      }
      take(it, news);
      if (!it.due) setTimeout(it.draw, it.wait);
      it.due = true;
    };
  };

  // Losses: of each job its points [epoch, training loss, validation loss]

  const PLACES = { train: 1, val: 2 };
  const pointsOf = (it, job, part, share) => {
    const of = (place) => job.points.filter((p) => p[place] !== null).map((p) => [p[0], p[place]]);
    let points = of(PLACES[part]);
    if (!points.length && it.parts.length === 1) points = of(3 - PLACES[part]);
    if (it.log) points = points.filter((p) => p[1] > 0);
    return share ? points.map(([epoch, loss]) => [(100 * epoch) / job.epochs, loss]) : points;
  };
  const lossLine = (it, job, part, share) => {
    const points = pointsOf(it, job, part, share);
    const id = `${job.id} ${part}`;
    if (it.parts.length === 1) return line(id, job.name, points, colour(job.order), DASHES[Math.floor(job.order / 8) % 3]);
    return part === "val" ? line(id, "validation", points, colour(1), DASHES[0]) : line(id, "training", points, colour(0), DASHES[1]);
  };
  const areUnlike = (jobs) => {
    const counts = jobs.map((job) => job.epochs);
    return counts.length > 1 && counts.every(Boolean) && Math.max(...counts) > 5 * Math.min(...counts);
  };
  const lossTip = (share) => (found) => {
    const where = found[0]?.axisValue ?? "";
    const lines = found.slice(0, 12).map((one) => tipLine(one, figure(one.value[1])));
    if (found.length > 12) lines.push(make("div", "dim", `and ${found.length - 12} more`));
    return tip(share ? `${Math.round(where)} % of the epochs` : `epoch ${where}`, ...lines);
  };
  const drawCurves = (it, chart, root) => {
    const { model, text } = it.match;
    const fits = (job) => (!model || job.model === model) && job.name.toLowerCase().includes(text.toLowerCase());
    const jobs = [...it.jobs.values()].filter(fits);
    const share = it.across === "share" || (!it.across && areUnlike(jobs));
    const drawn = share ? jobs.filter((job) => job.epochs) : jobs;
    const series = drawn.flatMap((job) => it.parts.map((part) => lossLine(it, job, part, share)));
    show(chart, it.label, {
      grid: { left: 52, right: 18, top: 16, bottom: series.length > 1 ? 66 : 44 },
      xAxis: {
        type: "value", name: share ? "share of the epochs, in percent" : "epoch", nameLocation: "middle", nameGap: 24,
        minInterval: 1, min: share ? 0 : "dataMin", max: share ? 100 : "dataMax", ...axis, splitLine: { show: false },
      },
      yAxis: { type: it.log ? "log" : "value", scale: true, ...axis },
      legend: {
        ...legend, show: series.length > 1, type: "scroll", bottom: 2, padding: 5, pageTextStyle: { color: "var(--dim)" },
        pageIconColor: "var(--accent)", pageIconInactiveColor: "var(--line)",
      },
      tooltip: { ...tooltip, trigger: "axis", axisPointer: { lineStyle: { color: "var(--dim)" } }, formatter: lossTip(share) },
      series,
    });
    root?.setAttribute("data-series", series.length);
    root?.setAttribute("data-across", share ? "share" : "epoch");
    const isSought = it.jobs.size > 0 && !jobs.length;
    sayNone(root, series.length ? "" : isSought ? "no job fits what is searched for" : "there are no losses to draw");
  };
  const takeCurves = (it, { jobs = [], gone = [], ...how }) => {
    Object.assign(it, how);
    for (const one of jobs) {
      const job = it.jobs.get(one.id) ?? { ...one, points: [], order: it.order++ };
      job.epochs = one.epochs ?? job.epochs;
      const kept = one.from === null ? [] : job.points.filter((p) => p[0] < one.from);
      job.points = [...kept, ...one.points];
      it.jobs.set(one.id, job);
    }
    for (const key of gone) it.jobs.delete(key);
  };
  const noCurves = () => ({
    jobs: new Map(), parts: ["val"], across: "", log: false, match: { model: "", text: "" }, order: 0, label: "",
  });

  // The timeline: a row a host, and one more for each slot that it used at the same time; a bar an attempt

  const NOTHING = "no job has begun in this time";
  const WAIT = "asking the coordinator …";
  /* When a trainer ended, which may be before that was known. */
  const trained = (job, now) => {
    const known = job.finished ?? now;
    return job.ran == null ? known : Math.min(known, job.started + job.ran);
  };
  /* Attempts that have ended, those that run, and of each job the newest if nobody told how it ended. */
  const barsOf = (it, from, now) => {
    const told = new Set(it.past.map((one) => `${one.id} ${one.attempt}`));
    const isNews = (job) => ["running", "claimed"].includes(job.state) || !told.has(`${job.id} ${job.attempt}`);
    const all = [...it.past, ...[...it.jobs.values()].filter(isNews)];
    return all.filter((one) => one.host && one.started && one.state !== "pending" && trained(one, now) >= from);
  };
  const rowsOf = (hosts, jobs, now) => {
    const slots = new Map(hosts);
    const lanes = new Map(hosts.map(([name]) => [name, [-Infinity]])); // by host, when each lane is free
    const lane = new Map();
    for (const job of [...jobs].sort((a, b) => a.started - b.started)) {
      if (!lanes.has(job.host)) lanes.set(job.host, [-Infinity]);
      const ends = lanes.get(job.host);
      let free = ends.findIndex((end) => end <= job.started);
      if (free < 0) free = ends.length < (slots.get(job.host) ?? 1) ? ends.length : ends.indexOf(Math.min(...ends));
      ends[free] = trained(job, now);
      lane.set(job, free);
    }
    const names = [...lanes.keys()].sort((a, b) => a.localeCompare(b, "en", { numeric: true }));
    const rows = names.flatMap((name) => lanes.get(name).map((_, index) => `${name} ${index}`)).reverse();
    const places = new Map(rows.map((row, index) => [row, index]));
    return { rows, place: (job) => places.get(`${job.host} ${lane.get(job)}`) };
  };
  const drawBar = (it) => (params, api) => {
    const { x, width: most } = params.coordSys;
    const [from, y] = api.coord([api.value(0), api.value(2)]);
    const [to] = api.coord([api.value(1), api.value(2)]);
    if (to < x || from > x + most) return null;
    const left = Math.max(from, x);
    const width = Math.max(2, Math.min(to, x + most) - left - 1);
    const height = Math.min(16, Math.max(6, api.size([0, 1])[1] * 0.66));
    const job = it.shown[api.value(3)];
    const text = { text: job.name, fill: "var(--raised)", fontSize: 11, overflow: "truncate", ellipsis: "…", width: width - 8 };
    return {
      type: "rect",
      shape: { x: left, y: y - height / 2, width, height, r: 2 },
      style: { fill: `var(--${job.state.replace(/[^a-z]/g, "")}, var(--cancelled))` },
      textContent: width > 46 ? { type: "text", style: text } : undefined,
      textConfig: { position: "insideLeft", distance: 4 },
    };
  };
  const barTip = (it) => (one) => {
    const job = it.shown[one.value[3]];
    if (!job) return make("div", "tip");
    const took = span((trained(job, Date.now()) - job.started) / 1000);
    const lines = [
      make("div", "", `attempt ${job.attempt}, ${job.state} on ${job.host}`),
      make("div", "dim", `${at(job.started)}, ${took}`),
    ];
    const newest = it.jobs.get(job.id);
    if (newest?.error && newest.attempt === job.attempt) lines.push(make("div", "bad", newest.error));
    return tip(job.name, ...lines);
  };
  /* The same attempts in a table, for who does not see the bars, or has no mouse to press them. */
  const attemptId = (p) => `${p.data.id} ${p.data.attempt}`;
  const listAttempts = (it, words) => whenReady(it.table, (api) => {
    if (api.isDestroyed()) return;
    // One that was given up and is there again is there once, as it is now.
    const rows = [...new Map(it.shown.map((one) => [attemptId({ data: one }), one])).values()];
    const root = document.getElementById(api.getGridOption("context").element);
    if (!rows.length) root.nextElementSibling.textContent = words;
    if (rows.length === it.listed.length && rows.every((row, index) => row === it.listed[index])) return;
    it.listed = rows;
    api.setGridOption("rowData", rows);
    document.getElementById("shown-attempts").textContent = ` ${rows.length || "none"}`;
  }, "api");
  const timeAxis = (first, now) => ({
    xAxis: { type: "time", position: "top", min: first, max: now, ...axis },
    dataZoom: [
      { type: "inside", filterMode: "weakFilter", zoomOnMouseWheel: "ctrl", moveOnMouseWheel: false },
      {
        type: "slider", filterMode: "weakFilter", height: 20, top: 14, borderColor: "var(--line)",
        fillerColor: "rgba(120,140,170,.22)", handleStyle: { color: "var(--accent)" }, moveHandleStyle: { color: "var(--dim)" },
        textStyle: { color: "var(--dim)" }, showDataShadow: false, labelFormatter: clock,
      },
    ],
  });
  const hostAxis = (rows, isNarrow) => ({
    type: "category", data: rows, ...axis, axisTick: { show: false },
    axisLabel: {
      color: "var(--ink)", width: isNarrow ? 84 : 128, overflow: "truncate", interval: 0,
      formatter: (row) => (row.endsWith(" 0") ? row.slice(0, -2) : ""),
    },
    splitLine: { ...axis.splitLine, show: true },
  });
  const drawTimeline = (it, chart, root) => {
    const begun = performance.now();
    const now = Date.now();
    const from = it.hours ? now - it.hours * 3600e3 : -Infinity;
    const jobs = it.shown = barsOf(it, from, now);
    const { rows, place } = rowsOf(it.hosts, jobs, now);
    const words = it.told ? NOTHING : WAIT; // that there are none is said once that is known
    listAttempts(it, words);
    sayNone(root, jobs.length ? "" : words);
    const first = jobs.reduce((low, job) => Math.min(low, job.started), now - 60e3);
    const isNarrow = root.clientWidth < 600;
    root.style.height = `${Math.max(260, rows.length * 22 + 110)}px`;
    chart.resize();
    show(chart, `Timeline of ${it.hosts.length} hosts and ${jobs.length} attempts. The table below has each of them.`, {
      grid: { left: isNarrow ? 92 : 140, right: 18, top: 72, bottom: 12 },
      ...timeAxis(Math.max(from, first), now),
      yAxis: hostAxis(rows, isNarrow),
      tooltip: { ...tooltip, formatter: barTip(it) },
      series: [{
        id: "jobs", type: "custom", renderItem: drawBar(it), clip: true, emphasis: { disabled: true },
        encode: { x: [0, 1], y: 2 },
        data: jobs.map((job, index) => [job.started, trained(job, now), place(job), index]),
      }],
    });
    if (!it.clicks) {
      it.clicks = true;
      chart.on("click", ({ value }) => {
        const job = it.shown[value?.[3]];
        if (job) location.href = `/job/${encodeURIComponent(job.id)}`;
      });
      setInterval(it.draw, 10000);
    }
    root.setAttribute("data-bars", jobs.length);
    it.wait = Math.max(60, 5 * (performance.now() - begun)); // of a fleet that never rests
  };
  const takeTimeline = (it, { jobs = [], gone = [], past, ...how }) => {
    Object.assign(it, how);
    for (const job of jobs) it.jobs.set(job.id, job);
    const lost = new Set(gone);
    for (const key of lost) it.jobs.delete(key);
    if (lost.size) it.past = it.past.filter((one) => !lost.has(one.id));
    if (past) it.past = [...(past.afresh ? [] : it.past), ...past.runs].slice(-past.most);
  };
  const noTimeline = () => ({ jobs: new Map(), past: [], hosts: [], shown: [], listed: [], told: false, table: 0, hours: 0 });

  // A host's heartbeats: points of [ms, CPU, RAM, GPU, VRAM], in percent

  const beatTip = (found) => tip(
    at(found[0]?.value[0]), ...found.map((one) => tipLine(one, `${Math.round(one.value[1])} %`)),
  );
  const drawBeats = (it, chart, root) => {
    const series = ["CPU", "RAM", "GPU", "VRAM"].map((name, index) => {
      const points = it.points.filter((p) => p[index + 1] !== null).map((p) => [p[0], p[index + 1]]);
      return line(name, name, points, colour(index), DASHES[index]);
    });
    show(chart, "CPU, memory and GPU use of this host over the last heartbeats, in percent", {
      grid: { left: 40, right: 18, top: 30, bottom: 26 },
      legend: { ...legend, top: 0 },
      // A host that was heard once, and is away, has one point, which alone has no stretch of time.
      xAxis: { type: "time", min: (seen) => Math.min(seen.min, seen.max - 60e3), ...axis, splitLine: { show: false } },
      yAxis: { type: "value", min: 0, max: 100, ...axis, axisLabel: { color: "var(--dim)", formatter: "{value} %" } },
      tooltip: { ...tooltip, trigger: "axis", formatter: beatTip },
      series: series.filter((one) => one.data.length),
    });
    sayNone(root, it.points.length ? "" : "no heartbeat was heard yet");
  };
  const takeBeats = (it, points) => {
    it.points = [...it.points, ...points].slice(-240);
  };

  Object.assign(fleet, {
    attemptId,
    feedCurves: feeder(noCurves, takeCurves, drawCurves),
    feedTimeline: feeder(noTimeline, takeTimeline, drawTimeline),
    feedBeats: feeder(() => ({ points: [] }), takeBeats, drawBeats),
  });
})();
