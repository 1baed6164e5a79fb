// The choice of config keys by which runs are grouped.
import { getList, packList } from "../data/url_state.js";

const OTHER_GROUPS = ["none", "seeds", "group", "tag"];

// A key each; where runs are grouped by keys already, also those with one more. `nameOf` is how a key is asked for.
export function keyOptions(keys, nameOf = (key) => key) {
  const chosen = getList("pool").filter((one) => !OTHER_GROUPS.includes(one));
  const names = new Map(keys.map((key) => [nameOf(key), key]));
  const option = (list) => [packList(list), list.map((one) => names.get(one) ?? one).join(", ")];
  const more = [...names.keys()].filter((one) => !chosen.includes(one)).map((one) => option([...chosen, one]));
  const alone = [...names.keys()].map((one) => option([one]));
  if (!chosen.length) return alone;
  const own = option(chosen);
  return [...(alone.some(([value]) => value === own[0]) ? [] : [own]), ...alone, ...more];
}
