// Colours of the current theme, from the style sheet.

const values = new Map(); // reading a style forces a layout, so each is read once per theme

export function cssVariable(name) {
  if (!values.has(name)) values.set(name, getComputedStyle(document.documentElement).getPropertyValue(name).trim());
  return values.get(name);
}

// Read all colours again, after a change of theme.
export function forgetColours() {
  values.clear();
}

export const PALETTE_SIZE = 12;

export function seriesColour(index) {
  return cssVariable(`--s${index % PALETTE_SIZE}`);
}
