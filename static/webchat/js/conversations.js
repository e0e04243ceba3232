/** Starts the page with the list of conversations, and keeps its entries and their status up to date. */

import { request } from "./net/api.js";
import { browserStorage, ReadMarks } from "./state/storage.js";
import { showBadges } from "./view/badges.js";
import { ConversationList, listenToSearch } from "./view/conversation_list.js";
import { ConversationMenu } from "./view/conversation_menu.js";
import { byId } from "./view/dom.js";
import { I18n } from "./view/i18n.js";
import { listenToSignOut } from "./view/sign_out.js";

const REFRESH_MS = 4_000;
/** The entries are refreshed often enough that a text like "3 minutes ago" stays true. */
const RENEW_MS = 60_000;

const region = byId(document, "conversations", HTMLElement);
const list = new ConversationList(region, () => showBadges(badges, readMarks, i18n));
const readMarks = new ReadMarks(browserStorage, region.dataset.user ?? "");
const i18n = new I18n(
  JSON.parse(byId(document, "webchat-texts", HTMLScriptElement).text),
  document.documentElement.lang || "en",
);
const title = document.title;
/** The conversations and pins at the last poll. */
let lastEdits = "";
/** @type {Map<string, import("./view/badges.js").Badge>} */
let badges = new Map();

/**
 * Poll for the status of the conversations. If that fails, the next poll tries again. A user who is signed out finds
 * out with the next click.
 */
async function refresh() {
  const answer = await request(region.dataset.url ?? "", { headers: { accept: "application/json" } }).catch(() => null);
  if (!answer?.ok) return;
  const { conversations } = await answer.json();
  const activeBadges = new Map();
  const entries = [];
  let waiting = 0;
  const edits = conversations
    .map(
      (/** @type {{conversation_id: string, is_pinned: boolean}} */ { conversation_id, is_pinned }) =>
        `${conversation_id} ${is_pinned}`,
    )
    .sort()
    .join();
  for (const { conversation_id: id, title, standing, asked, tools_running, is_queued } of conversations) {
    if (standing) activeBadges.set(id, { standing, asked, toolsRunning: tools_running, isQueued: is_queued });
    entries.push({ id, title, standing: standing ?? "" });
    waiting += asked;
  }
  badges = activeBadges;
  showBadges(badges, readMarks, i18n);
  list.update(entries);
  if (lastEdits && edits !== lastEdits) void list.refreshNow();
  lastEdits = edits;
  document.title = waiting > 0 ? i18n.text("title_asked", { n: waiting, title }) : title;
}

listenToSignOut();
listenToSearch((text) => list.search(text));
new ConversationMenu(region, { url: region.dataset.url ?? "", i18n, onChanged: () => void list.refreshNow() });
window.addEventListener("storage", () => {
  readMarks.reload();
  showBadges(badges, readMarks, i18n);
});
void refresh();
setInterval(refresh, REFRESH_MS);
setInterval(() => list.refresh(), RENEW_MS);
