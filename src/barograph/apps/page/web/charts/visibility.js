// Cards enter and leave the view.
import { scheduleInFrame } from "../ui/scheduling.js";

const DELAY_MS = 70; // a card that only scrolls past is not drawn

// Call `enter` and `leave` of cards; those in view at the start enter without the delay.
export function observeCards(cards) {
  let delay = 0;
  const cardOf = new Map(cards.map((card) => [card.node, card]));
  const observer = new IntersectionObserver(
    (entries) => {
      for (const entry of entries) {
        const card = cardOf.get(entry.target);
        card.near = entry.isIntersecting;
        if (card.near) setTimeout(() => card.near && scheduleInFrame(() => card.near && card.enter()), delay);
        else card.leave();
      }
      delay = DELAY_MS;
    },
    { rootMargin: "150px 0px" },
  );
  for (const card of cards) observer.observe(card.node);
  return observer;
}
