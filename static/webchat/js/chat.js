/** Starts the chat page: reads its settings and texts from the template, and joins the parts. */

import { Conversation } from "./state/conversation.js";
import { listedConversations, openQuestions } from "./state/overview.js";
import { activeTurn } from "./state/reducer.js";
import { announcementsOf, TierWatch } from "./view/announcements.js";
import { Announcer } from "./view/announcer.js";
import { Attention } from "./view/attention.js";
import { badgesOf, showBadges } from "./view/badges.js";
import { Composer } from "./view/composer.js";
import { ConnectionIndicator } from "./view/connection_indicator.js";
import { ConversationList } from "./view/conversation_list.js";
import { byId, setText } from "./view/dom.js";
import { I18n } from "./view/i18n.js";
import { listenToKeys } from "./view/keyboard.js";
import { Notice } from "./view/notice.js";
import { PageLayout } from "./view/page_layout.js";
import { RunningBar } from "./view/running_bar.js";
import { ChatTranscriptElement } from "./view/transcript.js";

/** @typedef {import("./state/types.js").State} State */

const REPAINT_MS = 250;
const LOST_AFTER_MS = 5_000;
const LIVE = new Set(["online", "slow", "resuming", "connecting"]);
const MAX_TITLE = 60;

class ChatPage {
  #app = byId("chat", HTMLElement);
  #transcript = byId("transcript", ChatTranscriptElement);
  #latest = byId("latest", HTMLButtonElement);
  #help = byId("help", HTMLDialogElement);
  #i18n = new I18n(JSON.parse(byId("webchat-texts", HTMLScriptElement).text), document.documentElement.lang || "en");
  #announcer = new Announcer(byId("status", HTMLElement), byId("alert", HTMLElement));
  #conversationId = this.#app.dataset.conversationId ?? "";
  #layout = new PageLayout();
  #notice = new Notice();
  #attention = new Attention(this.#conversationId);
  #connection = new ConnectionIndicator();
  #bar = new RunningBar();
  #conversationList = new ConversationList(byId("conversations", HTMLElement));
  #tiers = new TierWatch();
  #conversation = new Conversation(
    this.#socketUrl(),
    (before, after) => this.#changed(before, after),
    (text) => this.#composer.restore(text),
  );
  #closing = new AbortController();
  #composer = new Composer({
    form: byId("composer", HTMLFormElement),
    input: byId("composer-input", HTMLTextAreaElement),
    send: byId("send", HTMLButtonElement),
    storageKey: `draft:${this.#conversationId}`,
    onSend: (text) => this.#send(text),
    onEarly: () => this.#announcer.say({ text: this.#i18n.text("not_ready"), urgent: false }),
    signal: this.#closing.signal,
  });
  #isScheduled = false;
  #isLossSaid = false;

  start() {
    this.#listen();
    this.#listenToBrowser();
    setInterval(() => this.#tick(), REPAINT_MS);
    this.#conversation.connection.start();
    if (matchMedia("(hover: hover)").matches) this.#composer.focus();
  }

  #socketUrl() {
    const scheme = location.protocol === "https:" ? "wss:" : "ws:";
    return `${scheme}//${location.host}${this.#app.dataset.socketPath}`;
  }

  #listen() {
    const { signal } = this.#closing;
    const conversation = this.#conversation;
    this.#transcript.addEventListener(
      "tool-call-cancel",
      (event) => {
        const { turnId, toolId } = /** @type {CustomEvent} */ (event).detail;
        conversation.cancelTool(turnId, toolId);
      },
      { signal },
    );
    this.#transcript.addEventListener(
      "tool-call-extend",
      (event) => {
        const { turnId, toolId, extendMs } = /** @type {CustomEvent} */ (event).detail;
        conversation.extend(turnId, toolId, extendMs);
      },
      { signal },
    );
    this.#transcript.addEventListener(
      "tool-call-decide",
      (event) => {
        const { turnId, toolId, ...decided } = /** @type {CustomEvent} */ (event).detail;
        conversation.decide(turnId, toolId, decided);
      },
      { signal },
    );
    this.#transcript.addEventListener(
      "turn-retry",
      (event) => {
        this.#send(/** @type {CustomEvent} */ (event).detail.text);
      },
      { signal },
    );
    this.#transcript.addEventListener(
      "turn-continue",
      (event) => {
        conversation.continueTurn(/** @type {CustomEvent} */ (event).detail.turnId);
        this.#transcript.follow();
      },
      { signal },
    );
    this.#transcript.addEventListener("scroll", () => this.#showLatest(), { signal, passive: true });
    for (const [id, act] of this.#buttons()) byId(id, HTMLButtonElement).addEventListener("click", act, { signal });
    for (const sample of document.querySelectorAll("button[data-prompt]")) {
      sample.addEventListener("click", () => this.#send(/** @type {HTMLElement} */ (sample).dataset.prompt ?? ""), {
        signal,
      });
    }
    listenToKeys({
      cards: () => this.#transcript.cards,
      cancelTurn: () => conversation.cancelTurn(),
      focusComposer: () => this.#composer.focus(),
      showHelp: () => this.#help.showModal(),
      signal,
    });
  }

  /** @returns {Array<[string, () => void]>} */
  #buttons() {
    return [
      ["cancel-turn", () => this.#conversation.cancelTurn()],
      ["reconnect", () => this.#conversation.connection.reconnect()],
      ["reload", () => location.reload()],
      ["notice-close", () => this.#conversation.dismissNotice()],
      ["help-open", () => this.#help.showModal()],
      ["resume", () => this.#conversation.resume()],
      ["latest", () => this.#transcript.follow()],
      ["asked", () => this.#showQuestion()],
      ["earlier-show", () => this.#showEarlier()],
    ];
  }

  /** A browser that was away learns at once whether its line still stands. */
  #listenToBrowser() {
    const { signal } = this.#closing;
    const { connection } = this.#conversation;
    const revive = () => connection.revive();
    window.addEventListener("online", revive, { signal });
    window.addEventListener("pageshow", (event) => event.persisted && revive(), { signal });
    window.addEventListener("offline", () => connection.suspect(), { signal });
    document.addEventListener(
      "visibilitychange",
      () => {
        if (document.visibilityState !== "visible") return;
        revive();
        this.#schedule();
      },
      { signal },
    );
  }

  /** @param {string} text @returns {boolean} */
  #send(text) {
    const isTaken = this.#conversation.send(text);
    if (isTaken) this.#transcript.follow();
    return isTaken;
  }

  #showQuestion() {
    this.#transcript.show(this.#bar.nextQuestion(this.#conversation.state));
    this.#schedule();
  }

  /** The button stays under the finger; when there is nothing earlier any more, the focus goes to the conversation. */
  async #showEarlier() {
    const count = await this.#conversation.showEarlier(this.#app.dataset.messagesUrl ?? "");
    if (count === 0) return;
    this.#announcer.say({ text: this.#i18n.count("say_earlier", count), urgent: false });
    if (!this.#conversation.state.hasEarlier) this.#transcript.focus({ preventScroll: true });
  }

  /** @param {State} before @param {State} after */
  #changed(before, after) {
    if (openQuestions(before).length > 0 && openQuestions(after).length === 0) this.#announcer.calm();
    for (const announcement of announcementsOf(before, after, this.#i18n)) this.#announcer.say(announcement);
    if (before.phase !== after.phase) this.#transcript.follow();
    if (before.otherConversations !== after.otherConversations && after.latest)
      this.#conversationList.update(listedConversations(after));
    this.#schedule();
  }

  #schedule() {
    if (this.#isScheduled) return;
    this.#isScheduled = true;
    requestAnimationFrame(() => {
      this.#isScheduled = false;
      this.#render();
    });
  }

  #view() {
    const { viewer, connection } = this.#conversation.state;
    return { i18n: this.#i18n, viewer, now: performance.now(), frozenAt: connection.frozenAt };
  }

  #render() {
    const { state } = this.#conversation;
    const view = this.#view();
    this.#showTitle(state);
    this.#transcript.render(state, view);
    if (state.phase === "ready") showBadges(badgesOf(state, this.#conversationId), this.#i18n);
    this.#layout.render(state);
    this.#notice.render(state, view);
    this.#attention.render(state, view);
    this.#connection.render(state, view);
    this.#bar.render(state, view);
    this.#composer.label(this.#i18n.text(activeTurn(state) ? "queue" : "send"));
    this.#showLatest();
  }

  #tick() {
    if (document.visibilityState !== "visible") return;
    const { state } = this.#conversation;
    const view = this.#view();
    this.#connection.render(state, view);
    this.#bar.render(state, view);
    this.#sayLoss(state, view.now);
    if (activeTurn(state) === null) return;
    this.#transcript.tick(view);
    for (const crossing of this.#tiers.crossings(state, view.now, this.#i18n)) this.#announcer.say(crossing);
  }

  /** @param {State} state @param {number} now */
  #sayLoss({ connection }, now) {
    const { status, frozenAt } = connection;
    const isLost = frozenAt !== null && !LIVE.has(status) && now - frozenAt > LOST_AFTER_MS;
    if (isLost && !this.#isLossSaid) this.#announcer.say({ text: this.#i18n.text(`banner_${status}`), urgent: true });
    if (this.#isLossSaid && frozenAt === null) {
      this.#announcer.calm();
      this.#announcer.say({ text: this.#i18n.text("say_connected"), urgent: false });
    }
    this.#isLossSaid = isLost || (this.#isLossSaid && frozenAt !== null);
  }

  #showLatest() {
    this.#latest.hidden = this.#transcript.isAtEnd || this.#transcript.isFollowing;
  }

  /** A conversation without a title is called by its first words until the server names it. @param {State} state */
  #showTitle(state) {
    if (this.#app.dataset.untitled === undefined || state.hasEarlier) return;
    const first = state.turns[0]?.items.find((item) => item.kind === "user");
    if (first?.kind !== "user") return;
    const line = first.text.split(/\s+/).join(" ").trim();
    const title = line.length > MAX_TITLE ? `${line.slice(0, MAX_TITLE - 1)}…` : line;
    this.#attention.name(title);
    setText(byId("title", HTMLElement), title);
    const listed = document.querySelector(".sidebar-link[aria-current] .conversation-title");
    if (listed) setText(listed, title);
  }
}

new ChatPage().start();
