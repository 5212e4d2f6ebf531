// The page: figures of the moment, charts of the last ten minutes, and tables. Texts of the server are only shown, never
// read as markup: other servers choose the names of nodes.

import { Samples, percentile, rate, shown } from "./samples.js";

/** The time that charts show, and at first. */
const KEPT_MS = 600_000;
const FIRST_MS = 60_000;
/** Rates of tables and percentiles are those of this time. */
const WINDOW_MS = 10_000;
/** Events come every 2 s. Without one for this time, the server is not reached. */
const SILENCE_MS = 8_000;
const RETRY_MS = 3_000;

const at = (id) => document.getElementById(id);

function element(name, properties = {}, ...children) {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...children);
  return made;
}

// ---- Figures of the moment

const FIGURES = [
  ["Sent", (b, a) => shown.throughput(rate(b, a, "xrootd_server_bytes_total", { direction: "tx" }))],
  ["Received", (b, a) => shown.throughput(rate(b, a, "xrootd_server_bytes_total", { direction: "rx" }))],
  ["Requests", (b, a) => shown.rate(requests(b, a))],
  ["Connections", (b, a) => shown.count(a.sum("scalla_connections"))],
  ["Files open", (b, a) => shown.count(a.sum("scalla_open_files"))],
  ["Errors", (b, a) => shown.rate(rate(b, a, "scalla_errors_total"))],
  ["Redirects", (b, a) => shown.rate(rate(b, a, "scalla_redirects_total"))],
  ["Cache hits", (b, a) => shown.percent(hits(b, a))],
  ["Waiting for tape", (b, a) => shown.count(a.sum("scalla_transfers", { direction: "in", state: "queued" }))],
  ["Processors in use", (b, a) => shown.part(rate(b, a, "process_cpu_seconds_total"))],
  ["Memory", (b, a) => shown.bytes(a.sum("process_resident_memory_bytes"))],
  ["Running for", (b, a) => shown.duration(a.time / 1000 - a.sum("process_start_time_seconds"))],
];

const PRESENT = {
  "Files open": "scalla_open_files",
  "Cache hits": "xrootd_cache_access_bytes",
  "Waiting for tape": "scalla_transfers",
};

function requests(before, after) {
  return rate(before, after, "scalla_request_seconds_count");
}

/** The fraction of the bytes that came from the disk cache. */
function hits(before, after) {
  const grown = (type) => rate(before, after, "xrootd_cache_access_bytes", { type }) ?? 0;
  const [hit, other] = [grown("hit"), grown("miss") + grown("bypass")];
  return hit + other > 0 ? hit / (hit + other) : undefined;
}

function showFigures(before, after) {
  const list = at("now");
  const wanted = FIGURES.filter(([name]) => !PRESENT[name] || after.families.has(PRESENT[name]));
  if (list.children.length !== wanted.length) {
    list.replaceChildren(...wanted.map(([name]) => element("div", {}, element("dt", { textContent: name }), element("dd"))));
  }
  wanted.forEach(([, text], index) => {
    list.children[index].lastChild.textContent = text(before, after);
  });
}

// ---- Charts

const CHARTS = [
  { title: "Throughput", show: shown.throughput, lines: [
    ["sent", (b, a) => rate(b, a, "xrootd_server_bytes_total", { direction: "tx" })],
    ["received", (b, a) => rate(b, a, "xrootd_server_bytes_total", { direction: "rx" })] ] },
  { title: "Requests", show: shown.rate, lines: [
    ["all", requests],
    ["errors", (b, a) => rate(b, a, "scalla_errors_total")] ] },
  { title: "Time of requests", show: shown.seconds, lines: [
    ["half within", (b, a) => percentile(b, a, "scalla_request_seconds", {}, 0.5)],
    ["99 % within", (b, a) => percentile(b, a, "scalla_request_seconds", {}, 0.99)] ] },
  { title: "Clients", show: shown.count, lines: [
    ["connections", (b, a) => a.sum("scalla_connections")],
    ["open files", (b, a) => a.sum("scalla_open_files")] ] },
];

const CLASSES = ["first", "second"];
const SVG = "http://www.w3.org/2000/svg";

class Chart {
  constructor({ title, show, lines }) {
    Object.assign(this, { title, show, lines });
    this.points = [];
    this.svg = document.createElementNS(SVG, "svg");
    for (const [name, value] of [["viewBox", "0 0 600 100"], ["preserveAspectRatio", "none"], ["role", "img"]]) {
      this.svg.setAttribute(name, value);
    }
    const base = this.svg.appendChild(document.createElementNS(SVG, "line"));
    for (const [name, value] of [["x1", 0], ["x2", 600], ["y1", 99.5], ["y2", 99.5]]) base.setAttribute(name, value);
    this.paths = lines.map((_, index) => {
      const path = this.svg.appendChild(document.createElementNS(SVG, "path"));
      path.setAttribute("class", CLASSES[index]);
      return path;
    });
    this.keys = lines.map((_, index) => element("span", { className: `key ${CLASSES[index]}` }));
    [this.begin, this.most] = [element("span"), element("span")];
    const scale = element("div", { className: "scale" }, this.begin, this.most, element("span", { textContent: "now" }));
    at("charts").append(element("figure", {}, element("figcaption", {}, title, ...this.keys), this.svg, scale));
  }

  add(before, after) {
    this.points.push({ time: after.time, values: this.lines.map(([, value]) => value(before, after)) });
    while (this.points[0].time < after.time - KEPT_MS) this.points.shift();
    const all = this.points.flatMap(({ values }) => values).filter(Number.isFinite);
    const most = all.length ? Math.max(...all) : 0;
    const span = Math.max(FIRST_MS, after.time - this.points[0].time);
    this.begin.textContent = `${shown.duration(Math.round(span / 1000))} ago`;
    this.most.textContent = `top: ${this.show(most)}`;
    this.lines.forEach(([name], index) => {
      this.keys[index].textContent = `${name} ${this.show(this.points.at(-1).values[index])}`;
      this.paths[index].setAttribute("d", this.path(index, after.time, span, most));
    });
    const now = this.keys.map((key) => key.textContent).join(", ");
    this.svg.setAttribute("aria-label", `${this.title}: ${now}; at most ${this.show(most)} in the last ${shown.duration(Math.round(span / 1000))}`);
  }

  /** The line of one figure, with a gap where it is not known. */
  path(index, now, span, most) {
    let isDrawn = false;
    const steps = this.points.map(({ time, values }) => {
      if (!Number.isFinite(values[index])) {
        isDrawn = false;
        return "";
      }
      const x = 600 - (600 * (now - time)) / span;
      const y = most > 0 ? 99 - (97 * values[index]) / most : 99;
      const step = `${isDrawn ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`;
      isDrawn = true;
      return step;
    });
    return steps.join("");
  }
}

// ---- Tables

const number = (text) => ({ text, className: "number" });
const bad = (text) => ({ text, className: "bad" });

/** A cell with a bar. Screens without it, and readers of screens, have the text. */
function used(part) {
  if (!Number.isFinite(part)) return shown.percent();
  const meter = element("meter", { min: 0, max: 1, low: 0.85, high: 0.95, optimum: 0, value: part });
  meter.setAttribute("aria-label", "used");
  return { node: meter, text: ` ${shown.percent(part)}` };
}

const TABLES = [
  { title: "Cluster", wide: true, heads: ["node", "role", "state", "#load", "#free", "used", "#joined", "site", "version"],
    rows: (b, a) => a.named("scalla_dashboard_node_info").map(({ labels }) => [
      labels.address, labels.role, labels.state === "serving" ? labels.state : bad(labels.state),
      number(`${labels.load_percent} % ${labels.load_part}`), number(shown.bytes(labels.free_mb * 2 ** 20)),
      used(labels.used_percent / 100), number(labels.age_seconds ? shown.duration(Number(labels.age_seconds)) : shown.count()),
      labels.site, labels.version ]) },
  { title: "Managers", heads: ["address"],
    rows: (b, a) => a.named("scalla_dashboard_parent_info").map(({ labels }) => [labels.address]) },
  { title: "Requests", heads: ["protocol", "operation", "#each second", "#half within", "#99 % within"],
    rows: (b, a) => a.named("scalla_request_seconds_count").filter(({ value }) => value > 0).map(({ labels }) => [
      labels.protocol, labels.operation, number(shown.rate(rate(b, a, "scalla_request_seconds_count", labels))),
      number(shown.seconds(percentile(b, a, "scalla_request_seconds", labels, 0.5))),
      number(shown.seconds(percentile(b, a, "scalla_request_seconds", labels, 0.99))) ]) },
  { title: "Errors", heads: ["code", "#since the start", "#each second"],
    rows: (b, a) => a.named("scalla_errors_total").filter(({ value }) => value > 0).map(({ labels, value }) => [
      labels.code, number(shown.count(value)), number(shown.rate(rate(b, a, "scalla_errors_total", labels))) ]) },
  { title: "Refused connections", heads: ["reason", "#since the start"],
    rows: (b, a) => a.named("scalla_refused_connections_total").filter(({ value }) => value > 0).map(({ labels, value }) => [
      labels.reason, number(shown.count(value)) ]) },
  { title: "Storage", heads: ["path", "#size", "#free", "used"],
    rows: (b, a) => a.named("xrootd_storage_volume_bytes", { type: "total" }).map(({ labels: { ns }, value }) => {
      const free = a.sum("xrootd_storage_volume_bytes", { ns, type: "free" });
      return [ns, number(shown.bytes(value)), number(shown.bytes(free)), used(value > 0 ? 1 - free / value : 0)];
    }) },
  { title: "Disk cache", heads: ["bytes", "#since the start", "#each second"],
    rows: (b, a) => a.named("xrootd_cache_access_bytes").map(({ labels, value }) => [
      { hit: "read from the disk", miss: "read from the origin", bypass: "not stored", prefetch: "fetched ahead",
        to_disk: "stored" }[labels.type] ?? labels.type,
      number(shown.bytes(value)), number(shown.throughput(rate(b, a, "xrootd_cache_access_bytes", labels))) ]) },
  { title: "Mass storage", heads: ["direction", "#queued", "#running", "#failed"],
    rows: (b, a) => ["in", "out"].filter((direction) => a.named("scalla_transfers", { direction }).length).map((direction) => {
      const of = (state) => a.sum("scalla_transfers", { direction, state }) ?? 0;
      const failed = shown.count(of("failed"));
      return [direction === "in" ? "from tape" : "to tape", number(shown.count(of("queued"))), number(shown.count(of("running"))),
        of("failed") > 0 ? { text: failed, className: "number bad" } : number(failed)];
    }) },
  { title: "Certificates", heads: ["protocol", "#valid for"],
    rows: (b, a) => a.named("scalla_certificate_expiry_timestamp_seconds").map(({ labels, value }) => {
      const left = value - a.time / 1000;
      const text = left > 0 ? shown.duration(left) : "expired";
      return [labels.protocol, left < 30 * 86400 ? { text, className: "number bad" } : number(text)];
    }) },
];

class Table {
  constructor({ title, heads, rows, wide }) {
    this.rows = rows;
    this.body = element("tbody");
    const head = heads.map((text) => element("th", { scope: "col", className: text.startsWith("#") ? "number" : "", textContent: text.replace("#", "") }));
    const table = element("table", {}, element("thead", {}, element("tr", {}, ...head)), this.body);
    table.setAttribute("aria-label", title);
    // Tables that are wider than the screen are moved with the keyboard too.
    const scroll = element("div", { className: "scroll", tabIndex: 0 }, table);
    scroll.setAttribute("role", "region");
    scroll.setAttribute("aria-label", title);
    this.section = element("section", { className: wide ? "wide" : "", hidden: true }, element("h2", { textContent: title }), scroll);
    at("tables").append(this.section);
  }

  show(before, after) {
    const rows = this.rows(before, after).map((cells) => element("tr", {}, ...cells.map((cell) => {
      const { text, className = "", node } = typeof cell === "object" ? cell : { text: cell };
      return element("td", { className }, ...(node ? [node] : []), text ?? "");
    })));
    this.section.hidden = rows.length === 0;
    this.body.replaceChildren(...rows);
  }
}

// ---- Events

const charts = CHARTS.map((chart) => new Chart(chart));
const tables = TABLES.map((table) => new Table(table));
let recent = [];
let heard = 0;

function say(text, className) {
  const state = at("state");
  // A reader of screens speaks each change.
  if (state.textContent !== text) state.textContent = text;
  state.className = className;
}

function show(event) {
  const after = new Samples(Number(event.lastEventId), event.data);
  heard = Date.now();
  const previous = recent.at(-1);
  // After a restart of the server, counters have begun again.
  if (previous && previous.sum("process_start_time_seconds") !== after.sum("process_start_time_seconds")) recent = [];
  const last = recent.at(-1);
  recent = [...recent.filter(({ time }) => time >= after.time - WINDOW_MS), after];
  const info = after.named("scalla_server_info")[0]?.labels ?? {};
  const version = after.named("scalla_build_info")[0]?.labels.version;
  const parts = [location.host, info.role, info.instance_name, info.site, version && `version ${version}`];
  at("server").textContent = parts.filter(Boolean).join(" · ");
  document.title = `${location.host} – Scalla`;
  say("Live", "live");
  showFigures(last, after);
  for (const chart of charts) chart.add(last, after);
  for (const table of tables) table.show(recent[0] === after ? undefined : recent[0], after);
}

function listen() {
  const events = new EventSource("/dashboard/events");
  events.onmessage = show;
  events.onerror = () => {
    say("No connection to the server; trying again", "lost");
    // A refusal ends the events; the browser tries again by itself otherwise.
    if (events.readyState === EventSource.CLOSED) setTimeout(listen, RETRY_MS);
  };
}

setInterval(() => {
  if (heard && Date.now() - heard > SILENCE_MS) say("The server sends no figures", "lost");
}, 1_000);
listen();
