// One series against another, as points.
import { nearestIndex } from "./curve_math.js";

// The points of two series at the same steps, from left to right; `steps` are the steps of the points.
export function against(ySeries, xSeries) {
  const points = [];
  for (let i = 0; i < ySeries.x_end.length; i++) {
    const j = nearestIndex(xSeries, ySeries.x_end[i]);
    if (j < 0) continue;
    const [x, y] = [xSeries.last[j], ySeries.last[i]];
    if (Number.isFinite(x) && Number.isFinite(y)) points.push({ x, y, step: ySeries.x_end[i] });
  }
  return pointSeries(ySeries.name, points);
}

// The last point of two series.
export function lastAgainst(ySeries, xSeries) {
  const [x, y] = [xSeries, ySeries].map((series) => Array.from(series.last).findLast(Number.isFinite));
  const step = ySeries.x_end[ySeries.x_end.length - 1];
  return pointSeries(ySeries.name, x === undefined || y === undefined ? [] : [{ x, y, step }]);
}

function pointSeries(name, points) {
  points.sort((a, b) => a.x - b.x);
  const column = (field) => Float64Array.from(points, (point) => point[field]);
  const [x, y] = [column("x"), column("y")];
  const nonfinite = new Uint32Array(points.length);
  return { name, x, x_end: x, min: y, max: y, last: y, nonfinite, steps: column("step"), exact: true, found: true };
}
