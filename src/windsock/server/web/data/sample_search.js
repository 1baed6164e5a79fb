// Search in the samples of a report, as the server searches in those of a run.

export function searchSamples(all, parameters) {
  const found = all ?? { samples: [], census: null };
  const sort = parameters.sort ?? "-step";
  const key = sort.replace("-", "");
  const sign = sort.startsWith("-") ? -1 : 1;
  const samples = found.samples.filter((sample) => matches(sample, parameters));
  samples.sort((a, b) => sign * ((a[key] ?? 0) - (b[key] ?? 0)));
  return { samples, matched: samples.length, offset: 0, more: false, census: found.census };
}

function matches(sample, { grep, step, group, task, finish_reason, min_reward, max_reward }) {
  const text = `${sample.prompt} ${sample.completion}`.toLowerCase();
  return (
    (!grep || text.includes(grep.toLowerCase())) &&
    ((step ?? "") === "" || sample.step === Number(step)) &&
    (!group || sample.group === group) &&
    (!task || sample.task === task) &&
    (!finish_reason || sample.finish_reason === finish_reason) &&
    (!min_reward || sample.reward >= Number(min_reward)) &&
    (!max_reward || sample.reward <= Number(max_reward))
  );
}
