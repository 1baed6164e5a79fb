// Markup as templates, which lit-html draws: drawn again, an element stays and what has changed in it is set. Logged text
// in a template always becomes a text node, never markup. `nothing` leaves out an attribute or a child.
import { html, nothing, render } from "lit-html";
import { repeat } from "lit-html/directives/repeat.js";

export { html, nothing, render, repeat };

// The nodes of a template that is drawn once.
export function fragmentOf(template) {
  const host = document.createDocumentFragment();
  render(template, host);
  return host;
}

export function elementOf(template) {
  return fragmentOf(template).firstElementChild;
}
