/** Starts the chat page: the chat itself, and around it the list of conversations and the title of the page. */

import { listedConversations } from "./state/overview.js";
import { ReadMarks } from "./state/read_marks.js";
import { activeTurn } from "./state/reducer.js";
import { browserStorage } from "./state/storage.js";
import { AgentChoice } from "./view/agent_choice.js";
import { Attention } from "./view/attention.js";
import { badgesOf, showBadges } from "./view/badges.js";
import { Chat } from "./view/chat.js";
import { ConversationList } from "./view/conversation_list.js";
import { ConversationMenu } from "./view/conversation_menu.js";
import { byId, setText, writingPlace } from "./view/dom.js";
import { endingLabel } from "./view/labels.js";
import { listenToSearch } from "./view/search.js";
import { listenToSignOut } from "./view/sign_out.js";
import { TurnNotification } from "./view/turn_notification.js";

/** @typedef {import("./state/types.js").State} State */
/** @typedef {import("./view/tool_call.js").View} View */

const MAX_TITLE = 60;
const RENDERING = 10_000; // milliseconds that the making of a page may take, and that clocks may differ

class ChatPage {
  #app = byId(document, "chat", HTMLElement);
  #conversationId = this.#app.dataset.conversationId ?? "";
  #list = byId(document, "conversations", HTMLElement);
  #readMarks = new ReadMarks(browserStorage, this.#app.dataset.user ?? "");
  #attention = new Attention(this.#conversationId);
  #conversationList = new ConversationList(this.#list, () => this.#showRenamed());
  #chat = new Chat(document, {
    onChanged: (before, after) => this.#changed(before, after),
    onFound: (page) => {
      history.replaceState(null, "", page);
      void this.#conversationList.refreshNow();
    },
    onRendered: (state, view) => this.#rendered(state, view),
    onStored: () => {
      this.#readMarks.reload();
      this.#chat.schedule();
    },
  });

  /** @type {AgentChoice|null} */
  #agent = null;
  #notification = new TurnNotification(this.#chat.i18n, (text) => this.#chat.announcer.say({ text, urgent: true }));

  start() {
    this.#agent = new AgentChoice(this.#app, this.#chat.i18n, (said) => this.#chat.announcer.say(said));
    listenToSignOut();
    listenToSearch(
      (text) => this.#conversationList.search(text),
      () => writingPlace(document).focus(),
    );
    new ConversationMenu(this.#list, {
      url: this.#app.dataset.conversationsUrl ?? "",
      i18n: this.#chat.i18n,
      onChanged: ({ id, isDeleted }) => {
        if (isDeleted && id === this.#conversationId) location.assign(byId(document, "back", HTMLAnchorElement).href);
        else void this.#conversationList.refreshNow();
      },
      onProblem: (text) => this.#chat.announcer.say({ text, urgent: true }),
    });
    this.#chat.start();
  }

  /** @param {State} before @param {State} after */
  #changed(before, after) {
    if (before.otherConversations !== after.otherConversations && after.latest)
      this.#conversationList.update(listedConversations(after));
    const isEdited = before.listEditedAt !== after.listEditedAt && this.#isListBehind(before, after);
    const isGone = before.connection.status !== "not_found" && after.connection.status === "not_found";
    if (isEdited || isGone) void this.#conversationList.refreshNow();
    if (document.visibilityState !== "visible") this.#changedOutOfSight(before, after);
  }

  /**
   * Something in the list was edited. What was edited long before the server made the page, the page has.
   * @param {State} before @param {State} after
   */
  #isListBehind(before, after) {
    if (before.listEditedAt !== undefined) return true;
    const renderedAt = Date.parse(this.#list.dataset.renderedAt ?? "");
    return Date.parse(after.listEditedAt ?? "") > renderedAt - RENDERING;
  }

  /** A page that nobody sees is not drawn, but its title is seen. @param {State} before @param {State} after */
  #changedOutOfSight(before, after) {
    const { i18n } = this.#chat;
    const turn = this.#attention.ended(before, after);
    this.#attention.render(after, { i18n });
    if (!turn) return;
    const ending = endingLabel(i18n, turn, after.viewer);
    this.#notification.tell(this.#attention.title, ending?.title ?? i18n.text("notification_answered"));
  }

  /** @param {State} state @param {View} view */
  #rendered(state, view) {
    this.#showTitle(state);
    if (state.phase === "ready") this.#showBadges(state);
    this.#attention.render(state, view);
  }

  /** What is in sight and at rest counts as looked at. @param {State} state */
  #showBadges(state) {
    const isSeen = document.visibilityState === "visible" && activeTurn(state) === null;
    if (isSeen) this.#readMarks.see(this.#conversationId, state.lastSeq ?? 0);
    showBadges(badgesOf(state, this.#conversationId), this.#readMarks, this.#chat.i18n);
  }

  /** The list has the title that the server knows; somebody may have given another one. */
  #showRenamed() {
    this.#chat.schedule();
    const entry = document.querySelector(".list-entry:has([aria-current])");
    if (!(entry instanceof HTMLElement)) return;
    if (entry.dataset.agent) this.#agent?.show(entry.dataset.agent);
    const { title } = entry.dataset;
    if (!title) return;
    delete this.#app.dataset.untitled;
    this.#attention.name(title);
    setText(byId(document, "title", HTMLElement), title);
  }

  /** A conversation without a title is called by its first words until the server names it. @param {State} state */
  #showTitle(state) {
    if (this.#app.dataset.untitled === undefined || state.hasEarlier) return;
    const first = state.turns[0]?.items.find((item) => item.kind === "user");
    if (first?.kind !== "user") return;
    const line = first.text.split(/\s+/).join(" ").trim();
    const title = line.length > MAX_TITLE ? `${line.slice(0, MAX_TITLE - 1)}…` : line;
    this.#attention.name(title);
    setText(byId(document, "title", HTMLElement), title);
    const listed = document.querySelector(".sidebar-link[aria-current] .conversation-title");
    if (listed) setText(listed, title);
  }
}

new ChatPage().start();
