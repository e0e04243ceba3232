/** Starts the chat page: the chat, the list of conversations and the page's title. */

import { editConversation } from "./net/api.js";
import { listedConversations } from "./state/overview.js";
import { activeTurn } from "./state/reducer.js";
import { browserStorage, ReadMarks } from "./state/storage.js";
import { Attention, TurnNotification } from "./view/attention.js";
import { badgesOf, showBadges } from "./view/badges.js";
import { Chat } from "./view/chat.js";
import { ConversationList, listenToSearch } from "./view/conversation_list.js";
import { ConversationMenu } from "./view/conversation_menu.js";
import { byId, setText, writingPlace } from "./view/dom.js";
import { endingLabel } from "./view/labels.js";
import { listenToSignOut } from "./view/sign_out.js";

/** @typedef {import("./state/types.js").State} State */
/** @typedef {import("./view/announcer.js").Announcement} Announcement */
/** @typedef {import("./view/dom.js").View} View */
/** @typedef {import("./view/i18n.js").I18n} I18n */

const MAX_TITLE = 60;
const RENDERING = 10_000; // milliseconds allowed for rendering a page and for clock differences

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
    this.#agent = new AgentChoice(this.#app, this.#chat.i18n, (announcement) => this.#chat.announcer.say(announcement));
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
   * Refresh the list after an edit, unless the edit is older than the page.
   * @param {State} before @param {State} after
   */
  #isListBehind(before, after) {
    if (before.listEditedAt !== undefined) return true;
    const renderedAt = Date.parse(this.#list.dataset.renderedAt ?? "");
    return Date.parse(after.listEditedAt ?? "") > renderedAt - RENDERING;
  }

  /** A hidden page is not drawn, but its title is visible. @param {State} before @param {State} after */
  #changedOutOfSight(before, after) {
    const { i18n } = this.#chat;
    const turn = this.#attention.ended(before, after);
    this.#attention.render(after, { i18n });
    const question = this.#attention.asked(before, after, i18n);
    if (question) this.#notification.tell(this.#attention.title, question);
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

  /** Mark the conversation as read if it is visible and idle. @param {State} state */
  #showBadges(state) {
    const isSeen = document.visibilityState === "visible" && activeTurn(state) === null;
    if (isSeen) this.#readMarks.see(this.#conversationId, state.lastSeq ?? 0);
    showBadges(badgesOf(state, this.#conversationId), this.#readMarks, this.#chat.i18n);
  }

  /** Show the server's title, because the conversation may have been renamed. */
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

  /** An untitled conversation shows its first words until the server names it. @param {State} state */
  #showTitle(state) {
    if (this.#app.dataset.untitled === undefined || state.hasEarlier) return;
    const first = state.turns[0]?.items.find((item) => item.kind === "user");
    if (first?.kind !== "user") return;
    const line = first.text.split(/\s+/).join(" ").trim();
    const title = line.length > MAX_TITLE ? `${line.slice(0, MAX_TITLE - 1)}…` : line;
    this.#attention.name(title);
    setText(byId(document, "title", HTMLElement), title);
    const titleNode = document.querySelector(".sidebar-link[aria-current] .conversation-title");
    if (titleNode) setText(titleNode, title);
  }
}

/** The choice of the agent in the header, if there is more than one. */
class AgentChoice {
  #app;
  #select;
  #i18n;
  #say;

  /** @param {HTMLElement} app @param {I18n} i18n @param {(announcement: Announcement) => void} say */
  constructor(app, i18n, say) {
    this.#app = app;
    this.#i18n = i18n;
    this.#say = say;
    const select = document.getElementById("chat-agent");
    this.#select = select instanceof HTMLSelectElement ? select : null;
    this.#select?.addEventListener("change", () => void this.#choose());
  }

  /** Update the choice, because it may change in another tab. @param {string} agent */
  show(agent) {
    this.#app.dataset.agent = agent;
    if (this.#select) this.#select.value = agent;
  }

  /** Show the samples of the chosen agent on an empty page, and keep the draft. @param {string} address */
  #showEmpty(address) {
    const input = document.getElementById("composer-input");
    if (input instanceof HTMLTextAreaElement && input.value) history.replaceState(null, "", address);
    else location.replace(address);
  }

  async #choose() {
    const { agent: before = "", conversationsUrl = "", conversationId = "" } = this.#app.dataset;
    const agent = this.#select?.value ?? "";
    this.#app.dataset.agent = agent;
    if (this.#app.dataset.new !== undefined) {
      this.#showEmpty(`?${new URLSearchParams({ agent })}`);
      return;
    }
    const problem = await editConversation(`${conversationsUrl}/${conversationId}`, { agent });
    if (problem) this.show(before);
    const text = problem === "offline" ? this.#i18n.text("edit_offline") : problem;
    this.#say({ text: text || this.#i18n.text("agent_from_next", { agent }), urgent: problem !== "" });
  }
}

new ChatPage().start();
