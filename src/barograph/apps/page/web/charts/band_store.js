// The curves of groups of runs: the mean of each with its 95 % interval as a band, and every run behind it.
import { fetchBands } from "../data/api.js";
import { seriesFromJson } from "../data/series.js";
import { scheduleInFrame } from "../ui/scheduling.js";
import { SeriesStore } from "./store.js";

const POINTS = 240;
const MAX_BANDS = 150; // in one request

// Lines of its charts are those of `groupLine`.
export class BandStore extends SeriesStore {
  constructor() {
    super();
    this.bands = new Map(); // by group and name of the chart: {mean, low, high, runs}
  }

  async fetchRequested() {
    const cards = [...this.requested].filter((card) => card.visible);
    this.requested.clear();
    const lines = cards.flatMap((card) => card.chart.lines);
    try {
      for (let i = 0; i < lines.length; i += MAX_BANDS) await this.fetchPart(lines.slice(i, i + MAX_BANDS));
    } catch (problem) {
      return this.showProblem(problem.message);
    }
    for (const card of cards) scheduleInFrame(card.drawInFrame);
  }

  async fetchPart(lines) {
    const found = await fetchBands(
      lines.map((line) => line.members),
      POINTS,
    );
    lines.forEach((line, i) => {
      const { x, mean, low, high, runs } = found[i];
      const curve = (last) => seriesFromJson({ found: true, exact: true, x, last });
      const band = { mean: curve(mean), low: curve(low), high: curve(high), runs: runs.map(curve) };
      this.bands.set(`${line.run}\n${line.mean}`, band);
    });
  }

  series(run, name) {
    const [chart, what = "mean"] = name.split("\n");
    return this.bands.get(`${run}\n${chart}`)?.[what] ?? null;
  }

  older(run, name) {
    return this.bands.get(`${run}\n${name}`)?.runs ?? [];
  }
}

// The line of a group in a chart of the comparison; null where none of its runs has it.
export function groupLine(chart, group) {
  const members = chart.lines
    .filter((line) => group.keys.includes(line.run))
    .map(({ run, name, factor }) => ({ run, name, factor: factor ?? 1 }));
  if (!members.length) return null;
  const { key } = chart;
  const { label, colour, id } = group;
  return { run: id, label, colour, isGroup: true, members, mean: key, max: `${key}\nhigh`, min: `${key}\nlow` };
}
