/** The list of conversations, kept up to date: which of them work, wait for a decision, or were interrupted. */

import { byId } from "./dom.js";
import { showMarks } from "./marks.js";
import { Words } from "./words.js";

const REFRESH_MS = 4_000;

const list = byId("conversations", HTMLElement);
const words = new Words(
  JSON.parse(byId("webchat-texts", HTMLScriptElement).text),
  document.documentElement.lang || "en",
);
const title = document.title;

/** A look that fails is made up for by the next one; who is signed out learns that with the next click. */
async function refresh() {
  const answer = await fetch(list.dataset.url ?? "", { headers: { accept: "application/json" } }).catch(() => null);
  if (!answer?.ok) return;
  const { conversations } = await answer.json();
  const marks = new Map();
  let waiting = 0;
  for (const { conversation_id, standing, asked } of conversations) {
    marks.set(conversation_id, { standing: standing ?? "", asked });
    waiting += asked;
  }
  showMarks(marks, words);
  document.title = waiting > 0 ? words.text("title_asked", { n: waiting, title }) : title;
}

void refresh();
setInterval(refresh, REFRESH_MS);
