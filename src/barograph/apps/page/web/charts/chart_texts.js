// What a filter of charts looks at: the names in the runs, the id of the metric, and its title in both languages.
export function chartTexts(chart, metric = null) {
  const { lines } = chart; // of several runs, or those of one by statistic
  const names = Array.isArray(lines) ? lines.map((line) => line.mean ?? line.name) : Object.values(lines);
  return [chart.key, ...names, ...(metric ? [metric.id, ...Object.values(metric.title)] : [])];
}
