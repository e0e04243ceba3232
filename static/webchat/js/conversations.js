/** The list of conversations, kept up to date: which there are, and which work, wait for a decision, or were interrupted. */

import { showBadges } from "./view/badges.js";
import { ConversationList } from "./view/conversation_list.js";
import { byId } from "./view/dom.js";
import { I18n } from "./view/i18n.js";

const REFRESH_MS = 4_000;
/** "3 minutes ago" is not true for longer. */
const RENEW_MS = 60_000;

const region = byId("conversations", HTMLElement);
const list = new ConversationList(region);
const i18n = new I18n(JSON.parse(byId("webchat-texts", HTMLScriptElement).text), document.documentElement.lang || "en");
const title = document.title;

/** A look that fails is made up for by the next one; who is signed out learns that with the next click. */
async function refresh() {
  const answer = await fetch(region.dataset.url ?? "", { headers: { accept: "application/json" } }).catch(() => null);
  if (!answer?.ok) return;
  const { conversations } = await answer.json();
  const badges = new Map();
  const listed = [];
  let waiting = 0;
  for (const { conversation_id: id, title, standing, asked } of conversations) {
    badges.set(id, { standing: standing ?? "", asked });
    listed.push({ id, title, standing: standing ?? "" });
    waiting += asked;
  }
  showBadges(badges, i18n);
  list.update(listed);
  document.title = waiting > 0 ? i18n.text("title_asked", { n: waiting, title }) : title;
}

void refresh();
setInterval(refresh, REFRESH_MS);
setInterval(() => list.refresh(), RENEW_MS);
