// Samples of metrics: their text, rates and percentiles. Nothing here knows the page.

const SAMPLE = /^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)$/s;
const LABEL = /([a-zA-Z_]\w*)="((?:[^"\\]|\\.)*)"/g;
const ESCAPED = { n: "\n", "\\": "\\", '"': '"' };

/** The samples of one moment. `time` is in milliseconds. */
export class Samples {
  constructor(time, text) {
    this.time = time;
    this.families = new Map();
    for (const line of text.split("\n")) {
      const found = SAMPLE.exec(line);
      if (!found) continue;
      const labels = {};
      for (const [, name, value] of (found[2] ?? "").matchAll(LABEL)) {
        labels[name] = value.replace(/\\(.)/g, (_, c) => ESCAPED[c] ?? c);
      }
      if (!this.families.has(found[1])) this.families.set(found[1], []);
      this.families.get(found[1]).push({ labels, value: Number(found[3]) });
    }
  }

  /** All samples of a name, or those with certain labels. */
  named(name, labels = {}) {
    const wanted = Object.entries(labels);
    const all = this.families.get(name) ?? [];
    return all.filter((sample) => wanted.every(([key, value]) => sample.labels[key] === value));
  }

  /** The sum of the samples of a name; undefined if there are none. */
  sum(name, labels) {
    const found = this.named(name, labels);
    return found.length ? found.reduce((sum, sample) => sum + sample.value, 0) : undefined;
  }
}

/** How much a counter has grown in each second; undefined if it is not known, as after a restart of the server. */
export function rate(before, after, name, labels) {
  const [from, to] = [before?.sum(name, labels), after.sum(name, labels)];
  const seconds = (after.time - (before?.time ?? after.time)) / 1000;
  return from === undefined || to === undefined || to < from || seconds <= 0 ? undefined : (to - from) / seconds;
}

/** The cumulative buckets of histograms, those of each one apart, in the order of their bounds. */
function histograms(samples, name, labels) {
  const found = new Map();
  for (const sample of samples?.named(`${name}_bucket`, labels) ?? []) {
    const { le, ...series } = sample.labels;
    const key = JSON.stringify(series);
    if (!found.has(key)) found.set(key, []);
    found.get(key).push([le === "+Inf" ? Infinity : Number(le), sample.value]);
  }
  for (const buckets of found.values()) buckets.sort((a, b) => a[0] - b[0]);
  return [...found.values()];
}

/** How many times are not longer than a bound. A bucket that is left out counts what the one before does. */
function counted(histograms, bound) {
  const last = (buckets) => buckets.findLast(([other]) => other <= bound)?.[1] ?? 0;
  return histograms.reduce((sum, buckets) => sum + last(buckets), 0);
}

/** The fraction `part` of the times between two moments is not longer than this; undefined without times. */
export function percentile(before, after, name, labels, part) {
  const [from, to] = [histograms(before, name, labels), histograms(after, name, labels)];
  const grown = (bound) => counted(to, bound) - counted(from, bound);
  const wanted = part * grown(Infinity);
  if (!(wanted > 0)) return undefined;
  const bounds = new Set(to.flat().map(([bound]) => bound));
  let [lower, below] = [0, 0];
  for (const bound of [...bounds].sort((a, b) => a - b)) {
    const count = grown(bound);
    if (count >= wanted) {
      return bound === Infinity ? Infinity : lower + ((bound - lower) * (wanted - below)) / (count - below);
    }
    [lower, below] = [bound, count];
  }
  return Infinity;
}

function scaled(value, base, units) {
  let unit = 0;
  while (Math.abs(value) >= base && unit < units.length - 1) {
    value /= base;
    unit += 1;
  }
  const digits = unit === 0 || value >= 100 ? 0 : value >= 10 ? 1 : 2;
  return `${value.toFixed(digits)} ${units[unit]}`.trim();
}

const NONE = "–";
const isUnknown = (value) => value === undefined || Number.isNaN(value);

export const shown = {
  count: (value) => (isUnknown(value) ? NONE : Math.round(value).toLocaleString("en")),
  rate: (value) => {
    if (isUnknown(value)) return NONE;
    return value === 0 || value >= 100 ? `${shown.count(value)}/s` : `${value.toFixed(value < 10 ? 1 : 0)}/s`;
  },
  bytes: (value) => (isUnknown(value) ? NONE : scaled(value, 1000, ["B", "kB", "MB", "GB", "TB", "PB", "EB"])),
  throughput: (value) => (isUnknown(value) ? NONE : `${shown.bytes(value)}/s`),
  part: (value) => (isUnknown(value) ? NONE : value.toFixed(2)),
  percent: (value) => (isUnknown(value) ? NONE : `${(100 * value).toFixed(value < 0.1 ? 1 : 0)} %`),
  seconds: (value) => {
    if (isUnknown(value)) return NONE;
    if (value === Infinity) return "over 60 s";
    if (value < 1) return scaled(value * 1e6, 1000, ["µs", "ms"]);
    return `${value.toFixed(value < 10 ? 1 : 0)} s`;
  },
  duration: (value) => {
    if (isUnknown(value)) return NONE;
    const steps = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]];
    const first = steps.findIndex(([seconds]) => value >= seconds);
    if (first < 0) return "0 s";
    const [seconds, unit] = steps[first];
    const whole = Math.floor(value / seconds);
    const next = steps[first + 1];
    const rest = next ? Math.floor((value % seconds) / next[0]) : 0;
    return rest ? `${whole} ${unit} ${rest} ${next[1]}` : `${whole} ${unit}`;
  },
};
