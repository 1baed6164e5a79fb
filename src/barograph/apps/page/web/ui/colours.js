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

// Do some drawing in the colours of the light theme, for paper.
export function withLightColours(work) {
  const root = document.documentElement;
  const { theme } = root.dataset;
  root.dataset.theme = "light";
  forgetColours();
  try {
    return work();
  } finally {
    root.dataset.theme = theme;
    forgetColours();
  }
}

export const PALETTE_SIZE = 12;

export function seriesColour(index) {
  return cssVariable(`--s${index % PALETTE_SIZE}`);
}

// The colour of a series in a style of an element, which follows the theme.
export function seriesStyle(index) {
  return `var(--s${index % PALETTE_SIZE})`;
}
