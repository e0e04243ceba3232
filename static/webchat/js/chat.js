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
const RENDERING = 10_000; // milliseconds allowed for rendering the page and for different clocks

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
   * Return whether the list must be refreshed after an edit. An edit from before the page was rendered is already in
   * it.
   * @param {State} before @param {State} after
   */
  #isListBehind(before, after) {
    if (before.listEditedAt !== undefined) return true;
    const renderedAt = Date.parse(this.#list.dataset.renderedAt ?? "");
    return Date.parse(after.listEditedAt ?? "") > renderedAt - RENDERING;
  }

  /**
   * Update the title and notify the person, because a hidden page is not drawn.
   * @param {State} before
   * @param {State} after
   */
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

  /** Mark the conversation as read if it is visible and no turn is active, and show all badges. @param {State} state */
  #showBadges(state) {
    const isSeen = document.visibilityState === "visible" && activeTurn(state) === null;
    if (isSeen) this.#readMarks.see(this.#conversationId, state.lastSeq ?? 0);
    showBadges(badgesOf(state, this.#conversationId), this.#readMarks, this.#chat.i18n);
  }

  /** Show the title and agent in the refreshed list, because the conversation may have been renamed. */
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

  /**
   * Show the first words of an untitled conversation as its title until the server provides one.
   * @param {State} state
   */
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

/** The menu in the header that chooses the agent, if there are several. */
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

  /** Show the chosen agent, which may have changed in another tab. @param {string} agent */
  show(agent) {
    this.#app.dataset.agent = agent;
    if (this.#select) this.#select.value = agent;
  }

  /**
   * Reload an empty page to show the examples of the chosen agent. If there is a draft, keep the page and change only
   * its address.
   * @param {string} address
   */
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
