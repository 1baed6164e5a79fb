// Requests to the server; in a report, lookups in its data.
import { track } from "./loading.js";
import { bandInReport, curvesInReport, report, reportResponse } from "./report.js";
import { decodeSeries, seriesFromJson } from "./series.js";

const JSON_BODY = { "content-type": "application/json" };
const prefetched = new Map();

// The address of a path: below the page's own, which a proxy may serve under any path.
function addressOf(path) {
  return `.${path}`;
}

// Request a path that `fetchJson` will need, so that the overview does not wait for the list of runs.
export function prefetch(path) {
  if (!report) prefetched.set(path, fetch(addressOf(path)));
}

export async function fetchJson(path, parameters = {}) {
  if (report) return reportResponse(path, parameters);
  const url = withQuery(path, parameters);
  const ready = prefetched.get(url);
  prefetched.delete(url); // now: the body of a response can be read once
  return bodyOf(await track(ready ?? fetch(addressOf(url))));
}

// The decoded body, or an error with the server's message.
async function bodyOf(response) {
  const body = await response.json();
  if (!response.ok) throw Object.assign(new Error(body.error ?? response.statusText), { status: response.status });
  return body;
}

export function withQuery(path, parameters) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(parameters)) {
    for (const one of Array.isArray(value) ? value : [value]) {
      if (one !== null && one !== undefined && one !== "") query.append(name, one);
    }
  }
  const text = query.toString();
  return text ? `${path}?${text}` : path;
}

export function runPath(key, view = "") {
  return `/api/runs/${encodeURIComponent(key)}${view && `/${view}`}`;
}

// Change annotations of a run. Return it as it is now, and the function that undoes this.
export async function patchRun(key, fields) {
  const { before, ...run } = await sendPatch(key, fields);
  return { run, undo: async () => (await patchRun(key, before)).run };
}

async function sendPatch(key, fields) {
  const request = { method: "PATCH", headers: JSON_BODY, body: JSON.stringify(fields) };
  return bodyOf(await fetch(addressOf(runPath(key)), request));
}

function post(path, body) {
  return fetch(addressOf(path), { method: "POST", headers: JSON_BODY, body });
}

export async function postJson(path, body) {
  return bodyOf(await track(post(path, JSON.stringify(body))));
}

// A file that the server makes.
export async function postForBlob(path, body) {
  const response = await track(post(path, JSON.stringify(body)));
  return response.ok ? response.blob() : bodyOf(response);
}

// Fetch many series in one request. Each of `wanted` is {run, name, factor?, since?}.
export async function fetchSeries(wanted, options) {
  if (report) return wanted.flatMap((one) => seriesInReport(one, options));
  const body = JSON.stringify({ series: wanted, ...options, format: "binary" });
  const response = await track(post("/api/series", body));
  return response.ok ? decodeSeries(await response.arrayBuffer()) : bodyOf(response);
}

function seriesInReport({ run, name, factor }, options) {
  const found = report.blocks
    ? curvesInReport({ run, name, factor }, options)
    : report.series.filter((one) => one.name === name);
  return found.map((one) => ({ ...seriesFromJson(one), run, cursor: null, keep: 0 }));
}

// Fetch the means of groups of series, each a list of {run, name, factor}, with their intervals.
export async function fetchBands(groups, points) {
  if (report) return groups.map(bandInReport);
  const body = JSON.stringify({ groups, points });
  return (await bodyOf(await track(post("/api/bands", body)))).bands;
}

// One event stream for the list and the runs in view.
export function openEventStream(runs, handlers) {
  if (report) return { close() {} };
  const stream = new EventSource(addressOf(withQuery("/api/live", { run: runs, list: 1 })));
  for (const [name, handler] of Object.entries(handlers)) {
    stream.addEventListener(name, (event) => handler(JSON.parse(event.data || "{}")));
  }
  return stream;
}
