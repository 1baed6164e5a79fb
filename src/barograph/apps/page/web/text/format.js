// Formatting of numbers, durations, sizes and config values.

// "NaN" and the infinities come as strings in JSON; absent is null.
export function toNumber(value) {
  return value === null || value === undefined ? NaN : Number(value);
}

export function formatNumber(value) {
  if (value === null || value === undefined) return "–";
  const v = Number(value);
  if (Number.isNaN(v)) return "NaN";
  if (!Number.isFinite(v)) return v > 0 ? "+∞" : "−∞";
  const size = Math.abs(v);
  let text;
  if (v === 0) text = "0";
  else if (size >= 1e15) text = v.toExponential(2);
  else if (size >= 1e6) text = formatLarge(size) && (v < 0 ? "-" : "") + formatLarge(size);
  else if (Number.isInteger(v)) text = String(v);
  else if (size >= 100) text = v.toFixed(size >= 1000 ? 0 : 1);
  else if (size >= 10) text = v.toFixed(1);
  else if (size >= 1e-3) text = v.toPrecision(3);
  else text = v.toExponential(1);
  return text.replace("-", "−").replace("e−", "e-");
}

function formatLarge(size) {
  const [divisor, letter] = size >= 1e12 ? [1e12, "T"] : size >= 1e9 ? [1e9, "G"] : [1e6, "M"];
  return (size / divisor).toPrecision(3) + letter;
}

// A number for the end of an axis: few letters, still true.
export function formatShort(value) {
  const size = Math.abs(value);
  if (value === 0 || !Number.isFinite(value)) return formatNumber(value);
  if (size < 0.01) return value.toExponential(1).replace("-", value < 0 ? "−" : "-");
  if (size >= 10000 && size < 1e6) return `${(value / 1000).toPrecision(3)}k`.replace("-", "−");
  return size < 10000 ? String(Number(value.toPrecision(3))).replace("-", "−") : formatNumber(value);
}

export function formatSeconds(value) {
  if (value === null || value === undefined || !Number.isFinite(Number(value))) return "–";
  const s = Number(value);
  if (s === 0) return "0 s";
  if (s < 0.001) return `${(s * 1e6).toFixed(0)} µs`;
  if (s < 1) return `${(s * 1e3).toPrecision(3)} ms`;
  if (s < 60) return `${s.toPrecision(3)} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min${s % 60 < 1 ? "" : ` ${Math.floor(s % 60)} s`}`;
  if (s < 86400) return `${Math.floor(s / 3600)} h${s % 3600 < 60 ? "" : ` ${Math.floor((s % 3600) / 60)} min`}`;
  return `${Math.floor(s / 86400)} d ${Math.floor((s % 86400) / 3600)} h`;
}

export function formatPercent(value) {
  if (value === null || value === undefined) return "–";
  if (value > 0 && value < 0.0005) return "<0.1%";
  return `${(100 * value).toFixed(value < 0.0995 ? 1 : 0)}%`;
}

export function formatBytes(value) {
  if (!value) return "–";
  const power = Math.min(4, Math.floor(Math.log2(value) / 10));
  return `${(value / 1024 ** power).toPrecision(3)} ${["B", "KiB", "MiB", "GiB", "TiB"][power]}`;
}

// A value of a config as a person writes it.
export function formatConfigValue(value) {
  if (typeof value === "number" && value !== 0 && Math.abs(value) < 1e-3) return value.toExponential();
  return typeof value === "string" && value ? value : JSON.stringify(value);
}

const LETTER = 7; // pixels, of names in pictures

export function textWidth(name) {
  return LETTER * name.length;
}

export function truncateStart(name, width) {
  const most = Math.max(3, Math.floor(width / LETTER));
  return name.length > most ? `…${name.slice(1 - most)}` : name;
}
