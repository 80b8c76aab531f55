"use strict";
/* Shared by the pages: figures, times, colours.
   Text from the fleet goes into the document as text (textContent), never as HTML. */
window.fleet = (() => {
  const make = (tag, cls, text) => {
    const node = document.createElement(tag);
    if (cls) node.className = cls;
    if (text !== undefined && text !== null) node.textContent = String(text);
    return node;
  };

  // Figures and times

  const span = (s) => {
    if (s < 90) return `${Math.round(s)} s`;
    if (s < 5400) return `${Math.round(s / 60)} min`;
    if (s < 129600) return `${(s / 3600).toFixed(1)} h`;
    return `${Math.round(s / 86400)} d`;
  };
  const figure = (value) => {
    if (value === null || value === undefined) return "";
    const size = Math.abs(value);
    return size >= 1e5 || (size > 0 && size < 1e-3) ? value.toExponential(2) : value.toPrecision(4);
  };
  const whole = { hourCycle: "h23" };
  const at = (ms) => (ms ? new Date(ms).toLocaleString([], whole) : "");
  const clock = (ms) => new Date(ms).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", ...whole });
  const passed = (ms) => (Date.now() - ms) / 1000;
  const ago = (ms) => (passed(ms) < 2 ? "now" : `${span(passed(ms))} ago`);
  const exact = (ms) => {
    const today = new Date(ms).toDateString() === new Date().toDateString();
    return today ? new Date(ms).toLocaleTimeString([], whole) : at(ms);
  };
  /* The ways to tell a time; `ahead` is an estimate, which may be wrong. */
  const ways = {
    ago,
    exact,
    since: (ms) => `${exact(ms)} (${ago(ms)})`,
    took: (ms) => span(Math.max(0, passed(ms))),
    ahead: (ms) => {
      const left = -passed(ms);
      if (left > 1) return `in ${span(left)}`;
      return left > -10 ? "soon" : `${span(-left)} late`;
    },
    left: (ms) => (passed(ms) < -1 ? span(-passed(ms)) : ways.ahead(ms)),
  };
  const tellTime = (node) => {
    const ms = Number(node.dataset.ms);
    const text = ways[node.dataset.way ?? "ago"](ms);
    if (node.textContent !== text) node.textContent = text;
    if (!node.title) node.title = at(ms);
  };
  const tellTimes = () => document.querySelectorAll("time[data-ms]").forEach(tellTime);
  /* A time that stays current for as long as it is in the document. */
  const moment = (ms, way, before = "") => {
    if (ms === null || ms === undefined) return "";
    const node = make("time");
    node.dataset.ms = ms;
    node.dataset.way = way;
    node.title = before + at(ms);
    tellTime(node);
    return node;
  };

  // Light, dark, or as the system has it

  const modes = { auto: "as the system", light: "light", dark: "dark" };
  const themeOf = () => {
    try {
      const name = localStorage.getItem("fleet-theme");
      return modes[name] ? name : "auto";
    } catch {
      return "auto";
    }
  };
  const theme = (name) => {
    try { localStorage.setItem("fleet-theme", name); } catch { /* a private window */ }
    Quasar.Dark.set(name === "auto" ? "auto" : name === "dark");
    const scheme = document.getElementById("nicegui-color-scheme");
    scheme?.setAttribute("content", name === "auto" ? "light dark" : name);
    const button = document.getElementById("theme");
    button.textContent = { auto: "◐", light: "○", dark: "●" }[name];
    button.setAttribute("aria-label", `colours: ${modes[name]}; press to change`);
    button.title = `colours: ${modes[name]}`;
  };
  const nextTheme = () => theme({ auto: "light", light: "dark", dark: "auto" }[themeOf()]);
  /* Before NiceGUI's scripts have come: no flash of light in a dark room. */
  const early = () => {
    const name = themeOf();
    const dark = name === "dark" || (name === "auto" && matchMedia("(prefers-color-scheme: dark)").matches);
    document.body.classList.add(dark ? "body--dark" : "body--light");
  };

  // What the server calls

  /* The seconds until eight o'clock tomorrow, here. */
  const untilTomorrow = () => {
    const eight = new Date();
    eight.setDate(eight.getDate() + 1);
    eight.setHours(8, 0, 0, 0);
    return Math.ceil((eight - Date.now()) / 1000) + 1;
  };
  /* Show the end of an output; who has scrolled up stays where that is. */
  const log = (id, lines) => {
    const node = document.getElementById(`c${id}`);
    if (!node) return;
    const atEnd = node.scrollHeight - node.scrollTop - node.clientHeight < 40;
    node.textContent = lines.join("\n");
    if (atEnd) node.scrollTop = node.scrollHeight;
  };

  const begin = () => {
    const button = document.getElementById("theme");
    if (!window.Quasar || !button) return void setTimeout(begin, 20);
    theme(themeOf());
    button.addEventListener("click", nextTheme);
    let due = false;
    new MutationObserver(() => {
      if (due) return;
      due = true;
      requestAnimationFrame(() => {
        due = false;
        tellTimes();
      });
    }).observe(document.body, { childList: true, subtree: true });
    tellTimes();
    setInterval(tellTimes, 5000);
  };
  document.addEventListener("DOMContentLoaded", () => {
    if (document.getElementById("app")) begin(); // not on the login page
  });

  return { make, span, figure, at, clock, moment, early, untilTomorrow, log };
})();
