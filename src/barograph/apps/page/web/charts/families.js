// The order of families of charts.

const FIRST = ["reward", "policy", "value", "tokens", "ppo"];

// The families that people look at first, then the others in the catalogue's order.
export function sortByFamily(all, field = "key") {
  const position = (one) => (FIRST.includes(one[field]) ? FIRST.indexOf(one[field]) : FIRST.length);
  return [...all].sort((a, b) => position(a) - position(b));
}
