// The filter of names: a regular expression.

// The pattern of a filter, and what is wrong with it; an invalid one is searched as a plain text.
export function parseFilter(text) {
  try {
    return { pattern: new RegExp(text, "i"), problem: "" };
  } catch (error) {
    const problem = error.message.split(": ").at(-1).toLowerCase(); // "Invalid regular expression: /(/: Unterminated group"
    return { pattern: new RegExp(text.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"), "i"), problem };
  }
}
