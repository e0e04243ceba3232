/** The list of conversations, kept up to date: which there are, and which work, wait for a decision, or were interrupted. */

import { showMarks } from "./view/badges.js";
import { Listing } from "./view/conversation_list.js";
import { byId } from "./view/dom.js";
import { Words } from "./view/i18n.js";

const REFRESH_MS = 4_000;
/** "3 minutes ago" is not true for longer. */
const RENEW_MS = 60_000;

const region = byId("conversations", HTMLElement);
const listing = new Listing(region);
const words = new Words(
  JSON.parse(byId("webchat-texts", HTMLScriptElement).text),
  document.documentElement.lang || "en",
);
const title = document.title;

/** A look that fails is made up for by the next one; who is signed out learns that with the next click. */
async function refresh() {
  const answer = await fetch(region.dataset.url ?? "", { headers: { accept: "application/json" } }).catch(() => null);
  if (!answer?.ok) return;
  const { conversations } = await answer.json();
  const marks = new Map();
  const told = [];
  let waiting = 0;
  for (const { conversation_id: id, title, standing, asked } of conversations) {
    marks.set(id, { standing: standing ?? "", asked });
    told.push({ id, title, standing: standing ?? "" });
    waiting += asked;
  }
  showMarks(marks, words);
  listing.see(told);
  document.title = waiting > 0 ? words.text("title_asked", { n: waiting, title }) : title;
}

void refresh();
setInterval(refresh, REFRESH_MS);
setInterval(() => listing.renew(), RENEW_MS);
