// Conditions of a search, as the text that the URL has.

// The conditions with another one, or without it if it is among them.
export function toggledCondition(where, condition) {
  const all = conditionsOf(where);
  if (all.includes(condition)) return all.filter((one) => one !== condition).join(" and ");
  const rest = / or /i.test(where) ? `(${where.trim()})` : where.trim();
  return [rest, condition].filter(Boolean).join(" and ");
}

export function conditionsOf(where) {
  return where.split(" and ").map((one) => one.trim());
}
