// Asking the server; in a report, asking the data that came with it.
import { number } from "./dom.js";

const carried = document.getElementById("report-data");
export const report = carried ? JSON.parse(carried.textContent) : null;

const early = new Map();

// Begin to ask for what will be needed: the first picture does not wait for the list.
export function foresee(path) {
  if (!report) early.set(path, fetch(path));
}

export async function ask(path, parameters = {}) {
  if (report) return fromReport(path, parameters);
  const asked = address(path, parameters);
  const answer = await (early.get(asked) ?? fetch(asked));
  early.delete(asked);
  const body = await answer.json();
  if (!answer.ok) throw new Error(body.error ?? answer.statusText);
  return body;
}

function address(path, parameters = {}) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(parameters)) {
    for (const one of Array.isArray(value) ? value : [value]) {
      if (one !== null && one !== undefined && one !== "") query.append(name, one);
    }
  }
  const text = query.toString();
  return text ? `${path}?${text}` : path;
}

export function runPath(key, what = "") {
  return `/api/runs/${encodeURIComponent(key)}${what && `/${what}`}`;
}

export async function change(key, fields) {
  const answer = await fetch(runPath(key), {
    method: "PATCH",
    headers: { "content-type": "application/json" },
    body: JSON.stringify(fields),
  });
  const body = await answer.json();
  if (!answer.ok) throw new Error(body.error ?? answer.statusText);
  return body;
}

// Many series in one answer. Each wanted is {run, name, factor?, since?}.
export async function askSeries(wanted, options) {
  if (report)
    return wanted.flatMap(({ run, name }) =>
      report.series.filter((one) => one.name === name).map((one) => ({ ...fromJSON(one), run, cursor: null, keep: 0 })),
    );
  const answer = await fetch("/api/series", {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ series: wanted, ...options, format: "binary" }),
  });
  if (!answer.ok) throw new Error((await answer.json()).error ?? answer.statusText);
  return decode(await answer.arrayBuffer());
}

function decode(buffer) {
  const size = new DataView(buffer).getUint32(4, true);
  const header = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 8, size)));
  let at = 8 + size;
  const arrays = header.arrays.map(([type, length]) => {
    const array = type === "f8" ? new Float64Array(buffer, at, length) : new Uint32Array(buffer, at, length);
    at += Math.ceil(array.byteLength / 8) * 8;
    return array;
  });
  return header.series.map((one) => {
    const found = { ...one };
    for (const field of FIELDS) if (field in found) found[field] = arrays[found[field]];
    return columns(found);
  });
}

const FIELDS = ["x", "x_end", "min", "max", "last", "count", "nonfinite"];

// A series from JSON, with the columns that the binary form has.
export function fromJSON(curve) {
  const found = { ...curve };
  for (const field of FIELDS) if (field in found) found[field] = Float64Array.from(found[field], number);
  return columns(found);
}

// Where every bucket is one point, minimum, maximum and end are the point itself.
function columns(one) {
  if (!one.found) return one;
  if ("min" in one) return one;
  const nonfinite = Uint32Array.from(one.last, (value) => (Number.isFinite(value) ? 0 : 1));
  const finite = Float64Array.from(one.last, (value) => (Number.isFinite(value) ? value : NaN));
  return { ...one, x_end: one.x, min: finite, max: finite, count: nonfinite.map(() => 1), nonfinite };
}

// What came newly, behind the first `keep` buckets of what was there.
export function joined(old, fresh) {
  if (!old?.found || !fresh.found || !fresh.keep) return fresh;
  const whole = { ...fresh };
  for (const field of FIELDS) {
    const type = old[field].constructor === fresh[field].constructor ? old[field].constructor : Float64Array;
    whole[field] = type.from([...old[field].slice(0, fresh.keep), ...fresh[field]]);
  }
  whole.exact = old.exact && fresh.exact;
  return whole;
}

function fromReport(path, parameters) {
  const what = path.split("/")[4] ?? path.split("/")[2];
  if (what === "runs") return { cursor: "", reset: true, gone: [], pending: 0, runs: [reportRun()] };
  if (what === "samples") return samplesInReport(parameters);
  if (what === "events") return { events: [], cursor: 0, total: 0 };
  if (what === "histograms") return report.histograms.find((one) => one.name === parameters.name);
  const found = report[what];
  if (what === "names") return { ...found, axes: ["step"] }; // the report carries no other axis,
  if (what === "timeline" || what === "memory") return found && { ...found, steps: [found.step, found.step] }; // and one step
  return found;
}

function reportRun() {
  const info = report.details.info;
  const status = report.status.word;
  return {
    key: "report",
    name: info.name,
    project: info.project,
    status,
    tags: info.tags ?? [],
    note: "",
    last_step: report.overview.steps?.[1] ?? null,
    began: report.overview.span?.[0] ?? 0,
    reward: null,
  };
}

function samplesInReport(p) {
  const found = report.samples ?? { samples: [], census: null };
  const text = (p.grep ?? "").toLowerCase();
  const fits = (s) =>
    (!text || `${s.prompt} ${s.completion}`.toLowerCase().includes(text)) &&
    ((p.step ?? "") === "" || s.step === Number(p.step)) &&
    (!p.group || s.group === p.group) &&
    (!p.task || s.task === p.task) &&
    (!p.finish_reason || s.finish_reason === p.finish_reason) &&
    (!p.min_reward || s.reward >= Number(p.min_reward)) &&
    (!p.max_reward || s.reward <= Number(p.max_reward));
  const samples = found.samples.filter(fits);
  const key = (p.sort ?? "-step").replace("-", "");
  const sign = (p.sort ?? "-step").startsWith("-") ? -1 : 1;
  samples.sort((a, b) => sign * ((a[key] ?? 0) - (b[key] ?? 0)));
  return { samples, matched: samples.length, offset: 0, more: false, census: found.census };
}

// One stream for the list and the run that is looked at.
export function listen(run, handlers) {
  if (report) return { close() {} };
  const stream = new EventSource(address("/api/live", { run, list: 1 }));
  for (const [name, handler] of Object.entries(handlers)) {
    stream.addEventListener(name, (event) => handler(JSON.parse(event.data || "{}")));
  }
  return stream;
}
