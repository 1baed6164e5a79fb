// The sections of the Charts view: a title that opens and closes them, and the cards of their charts.
import { getList, packList, setState } from "../data/url_state.js";
import { el } from "../ui/dom.js";
import { elementOf, html, nothing } from "../ui/html.js";

// Draw a section; return it with its element, and the cards for the store.
export function drawSection(section, width) {
  const isOpen = !getList("closed").includes(section.key);
  const added = isOpen ? section.make() : [];
  const node = sectionNode(section, added, isOpen, width);
  return { key: section.key, title: section.title, node, cards: section.fetchesItself ? [] : added };
}

function sectionNode({ key, title, intro, count }, cards, isOpen, width) {
  const rows = Math.ceil(cards.length / Math.max(1, Math.floor((width + 12) / 342)));
  // The height that the section will have: without it the scroll bar jumps while sections come into view.
  const style = `contain-intrinsic-size: auto ${60 + 248 * rows}px`;
  return elementOf(html`<section class="family" .style=${style} data-section=${key}>
    <h2><button class="section-fold" aria-expanded=${isOpen} @click=${() => toggleSection(key)}>${
      isOpen ? title : `${title} (${count})`
    }</button></h2>
    ${intro && isOpen ? html`<p class="quiet">${intro}</p>` : nothing}
    <div class="charts-grid">${cards.map((card) => card.node)}</div>
  </section>`);
}

export function toggleSection(key) {
  const closed = getList("closed");
  setState({ closed: packList(closed.includes(key) ? closed.filter((one) => one !== key) : [...closed, key]) });
}

// A link to a section; it opens one that is closed.
export function sectionLink({ key, title, node }) {
  const onclick = (event) => {
    event.preventDefault();
    if (getList("closed").includes(key)) toggleSection(key);
    (node.isConnected ? node : document.querySelector(`[data-section="${CSS.escape(key)}"]`))?.scrollIntoView();
  };
  return el("a", { href: "#", text: title, onclick });
}
