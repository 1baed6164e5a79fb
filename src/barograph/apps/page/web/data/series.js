// Series of the API: decoding, and appending of new buckets. docs/api.md describes the format.
import { toNumber } from "../text/format.js";

const COLUMNS = ["x", "x_end", "min", "max", "last", "count", "nonfinite"];

export function decodeSeries(buffer) {
  const size = new DataView(buffer).getUint32(4, true);
  const header = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 8, size)));
  let offset = 8 + size;
  const arrays = header.arrays.map(([type, length]) => {
    const array = type === "f8" ? new Float64Array(buffer, offset, length) : new Uint32Array(buffer, offset, length);
    offset += Math.ceil(array.byteLength / 8) * 8; // each array starts at a multiple of 8
    return array;
  });
  return header.series.map((one) => withColumns(one, (index) => arrays[index]));
}

// A series from JSON, with the same columns as from the binary format.
export function seriesFromJson(curve) {
  return withColumns(curve, (values) => Float64Array.from(values, toNumber));
}

function withColumns(curve, convert) {
  const series = { ...curve };
  for (const name of COLUMNS) if (name in series) series[name] = convert(series[name]);
  return series.found && !("min" in series) ? expandExact(series) : series;
}

// An exact series has only x and last: each bucket is one point, with itself as minimum, maximum and end.
function expandExact(series) {
  const nonfinite = Uint32Array.from(series.last, (value) => (Number.isFinite(value) ? 0 : 1));
  const finite = Float64Array.from(series.last, (value) => (Number.isFinite(value) ? value : NaN));
  return { ...series, x_end: series.x, min: finite, max: finite, count: nonfinite.map(() => 1), nonfinite };
}

// Append a response to a known series, after its first `keep` buckets; `keep: 0` replaces it.
export function appendSeries(known, added) {
  if (!known?.found || !added.found || !added.keep) return added;
  const joined = { ...added };
  for (const name of COLUMNS) {
    const type = known[name].constructor === added[name].constructor ? known[name].constructor : Float64Array;
    joined[name] = new type(added.keep + added[name].length);
    joined[name].set(known[name].subarray(0, added.keep));
    joined[name].set(added[name], added.keep);
  }
  joined.exact = known.exact && added.exact;
  return joined;
}

// Whether a response has nothing that is not known: a metric that is not logged at every step, for example.
export function hasNothingNew(known, added) {
  if (!known?.found || !added.found || !added.keep || added.keep + added.x.length !== known.x.length) return false;
  return COLUMNS.every((name) => added[name].every((value, i) => Object.is(value, known[name][added.keep + i])));
}
