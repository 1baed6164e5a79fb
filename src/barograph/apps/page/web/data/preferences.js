// Preferences that the browser stores: theme and language.

export function readPreference(name) {
  try {
    return localStorage.getItem(`barograph.${name}`);
  } catch {
    return null;
  }
}

export function savePreference(name, value) {
  try {
    localStorage.setItem(`barograph.${name}`, value);
  } catch {
    // Storage is disabled or full: the choice still applies to this page.
  }
}
