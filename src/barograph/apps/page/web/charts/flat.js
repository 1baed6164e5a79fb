// Which charts show nothing: constants, and names without a finite value.
import { fetchSeries } from "../data/api.js";
import { getState } from "../data/url_state.js";

const MAX_SERIES = 300; // in one request

// The keys of the charts whose lines are all flat or empty. `charts` are those of cards.
export async function flatCharts(charts) {
  const wanted = charts.flatMap((chart) => chart.lines.map(({ run, mean }) => ({ run, name: mean })));
  const lively = new Set();
  for (let i = 0; i < wanted.length; i += MAX_SERIES) {
    const found = await fetchSeries(wanted.slice(i, i + MAX_SERIES), { points: 1, x: getState("x"), branches: false });
    for (const series of found) if (!isFlat(series)) lively.add(`${series.run}\n${series.name}`);
  }
  const isLively = ({ run, mean }) => lively.has(`${run}\n${mean}`);
  return new Set(charts.filter((chart) => !chart.lines.some(isLively)).map((chart) => chart.key));
}

// Whether a series has no two different finite values.
export function isFlat({ found, min, max }) {
  if (!found) return true;
  const lows = Array.from(min).filter(Number.isFinite);
  const highs = Array.from(max).filter(Number.isFinite);
  return !lows.length || Math.min(...lows) === Math.max(...highs);
}
