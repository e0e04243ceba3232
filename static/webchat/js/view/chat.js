/**
 * A chat, of which a page may have several. Start reading here.
 *
 * It reads its settings and texts from the template, and connects its parts.
 */

import { Conversation } from "../state/conversation.js";
import { askedCount } from "../state/overview.js";
import { activeTurn, isAtWork } from "../state/reducer.js";
import { Outbox, tabStorage } from "../state/storage.js";
import { Announcer, announcementsOf, LossWatch, spokenAnswers, TierWatch, withdrawnTexts } from "./announcer.js";
import { AttachmentTray } from "./attachments.js";
import { listenToBrowser, listenToKeys, listenToTranscript } from "./chat_events.js";
import { ChatSettings } from "./chat_settings.js";
import { Composer } from "./composer.js";
import { ConversationOpener } from "./conversation_opener.js";
import { BackgroundList, ContextMeter, QueueChips, RunningBar } from "./dock.js";
import { byId, drawWithFocus, jsonIn, writingPlace } from "./dom.js";
import { FormPanel } from "./form_panel.js";
import { I18n } from "./i18n.js";
import { AnswerWords, MessageSender, StopWords } from "./message_sender.js";
import { ConnectionIndicator, Notice, PageLayout } from "./page_layout.js";
import { QuestionPanel } from "./question_panel.js";
import { StopQuestion } from "./stop_question.js";
import { ChatTranscriptElement } from "./transcript.js";
import { Voice } from "./voice.js";

/** @typedef {import("../state/types.js").State} State */
/** @typedef {import("./dom.js").Root} Root */
/** @typedef {import("./chat_settings.js").Surroundings} Surroundings */

const REPAINT_MS = 250;

export class Chat {
  #root;
  #surroundings;
  #app;
  #settings;
  #transcript;
  #latest;
  #help;
  #i18n;
  #announcer;
  #layout;
  #notice;
  #connection;
  #bar;
  #queue;
  #background;
  #context;
  #question;
  #form;
  #tiers = new TierWatch();
  #loss;
  #conversation;
  #opener;
  #closing = new AbortController();
  #tray;
  #composer;
  #voice;
  #sender;
  #stopQuestion;
  #clock = 0;
  #isScheduled = false;

  /** @param {Root} root @param {Surroundings} [surroundings] */
  constructor(root, surroundings = {}) {
    this.#root = root;
    this.#surroundings = surroundings;
    this.#app = byId(root, "chat", HTMLElement);
    this.#transcript = byId(root, "transcript", ChatTranscriptElement);
    this.#latest = byId(root, "latest", HTMLButtonElement);
    this.#help = byId(root, "help", HTMLDialogElement);
    this.#settings = new ChatSettings(this.#app);
    const language = this.#app.lang || document.documentElement.lang || "en";
    this.#i18n = new I18n(jsonIn(root, "webchat-texts"), language);
    this.#announcer = new Announcer(byId(root, "status", HTMLElement), byId(root, "alert", HTMLElement));
    this.#loss = new LossWatch(this.#announcer);
    this.#layout = new PageLayout(root);
    this.#notice = new Notice(root);
    this.#connection = new ConnectionIndicator(root);
    const leave = () => writingPlace(root).focus();
    this.#bar = new RunningBar(root, () => this.#conversation.cancelTurn("after_step"), leave);
    this.#queue = new QueueChips(root, {
      remove: (turnId) => this.#conversation.withdraw(turnId),
      edit: (turnId, text) => {
        this.#conversation.withdraw(turnId, text);
        this.#composer.focus();
      },
      leave,
    });
    this.#context = new ContextMeter(root);
    this.#background = new BackgroundList(root, { stop: (turnId) => this.#conversation.stopWork(turnId), leave });
    this.#question = new QuestionPanel(root, (...answer) => this.#conversation.decide(...answer), leave);
    this.#form = new FormPanel(root, (...answer) => this.#conversation.answer(...answer), leave);
    this.#conversation = this.#newConversation();
    this.#opener = this.#newOpener();
    this.#tray = this.#newTray();
    this.#composer = this.#newComposer();
    this.#voice = this.#newVoice();
    this.#sender = this.#newSender();
    this.#stopQuestion = new StopQuestion(root, {
      stop: () => this.#conversation.cancelTurn(),
      leave: () => this.#composer.focus(),
      signal: this.#closing.signal,
    });
  }

  #newConversation() {
    return new Conversation(
      (before, after) => this.#changed(before, after),
      (text, attachments) => {
        this.#composer.restore(text);
        this.#tray.restore(attachments);
      },
      new Outbox(tabStorage, this.#settings.user, this.#settings.place),
    );
  }

  #newSender() {
    return new MessageSender({
      conversation: this.#conversation,
      composer: this.#composer,
      tray: this.#tray,
      stopWords: new StopWords(jsonIn(this.#root, "webchat-stop-words")),
      answers: new AnswerWords({ approve: this.#i18n.text("words_yes"), deny: this.#i18n.text("words_no") }),
      askToStop: (message) => this.#stopQuestion.ask(message),
      askToDecide: (decision, message) => this.#askToDecide(decision, message),
      onSent: (before) => {
        this.#transcript.showSent(before);
        this.#opener.make();
      },
    });
  }

  /**
   * Ask whether a message like "yes" or "no" is the answer to the open question.
   * @param {"approve"|"deny"} decision
   * @param {import("./stop_question.js").DoubtfulMessage} message
   * @returns {boolean} whether a question is open, so that the person was asked
   */
  #askToDecide(decision, message) {
    const { asked } = this.#question;
    if (!asked) return false;
    this.#stopQuestion.ask(message, {
      title: this.#i18n.text("answer_asked"),
      label: this.#i18n.text(decision === "approve" ? "allow_once" : "deny"),
      about: asked,
      act: () => this.#question.answer(decision, asked),
    });
    return true;
  }

  #newTray() {
    return new AttachmentTray(this.#root, {
      i18n: this.#i18n,
      announcer: this.#announcer,
      storageKey: `files:${this.#settings.user}:${this.#settings.place}`,
      onChanged: () => this.#composer?.refresh(),
      signal: this.#closing.signal,
    });
  }

  /** @returns {Composer} */
  #newComposer() {
    return new Composer({
      form: byId(this.#root, "composer", HTMLFormElement),
      input: byId(this.#root, "composer-input", HTMLTextAreaElement),
      send: byId(this.#root, "send", HTMLButtonElement),
      storageKey: () => this.#settings.draftKey,
      onSend: (text) => this.#sender.sendTyped(text),
      onEmptyCommand: () => this.#question.answer("approve", this.#question.asked),
      files: () => this.#tray,
      signal: this.#closing.signal,
    });
  }

  #newVoice() {
    return new Voice({
      button: byId(this.#root, "voice", HTMLButtonElement),
      note: byId(this.#root, "voice-note", HTMLElement),
      sends: byId(this.#root, "voice-sends", HTMLInputElement),
      announcer: this.#announcer,
      i18n: this.#i18n,
      onSaid: (text) => this.#sender.sendSpoken(text),
      onDictated: (text) => this.#sender.dictate(text),
      signal: this.#closing.signal,
    });
  }

  get i18n() {
    return this.#i18n;
  }

  get announcer() {
    return this.#announcer;
  }

  /** @param {{isNew?: boolean}} [how] `isNew` starts a new conversation instead of opening the latest one */
  start({ isNew = false } = {}) {
    this.#listen();
    this.#clock = window.setInterval(() => drawWithFocus(this.#root, () => this.#tick()), REPAINT_MS);
    this.#conversation.restore();
    this.#opener.open({ isNew });
    this.#composer.sendEarly();
    const isAwaited = isNew || this.#root === document; // an embedded chat must not take the focus from its host page
    if (isAwaited && matchMedia("(hover: hover)").matches) this.#composer.focus();
    this.schedule();
  }

  #newOpener() {
    return new ConversationOpener({
      root: this.#root,
      settings: this.#settings,
      conversation: this.#conversation,
      onFound: (draftKey) => {
        this.#composer.rename(draftKey);
        this.#surroundings.onFound?.(this.#settings.pageOf(this.#settings.conversationId));
      },
    });
  }

  /** Stop the chat, whose elements cannot be used any more. */
  close() {
    this.#closing.abort();
    clearInterval(this.#clock);
    this.#opener.close();
  }

  #listen() {
    const { signal } = this.#closing;
    const conversation = this.#conversation;
    const parts = { conversation, sender: this.#sender, transcript: this.#transcript, settings: this.#settings };
    listenToTranscript(parts, signal);
    listenToBrowser({
      connection: this.#opener,
      onInSight: () => this.schedule(),
      hasUnsent: () =>
        this.#composer.text !== "" || this.#tray.isInUse || this.#transcript.isEditing || conversation.hasUnsent,
      signal,
    });
    this.#root.getElementById("begin-anew")?.addEventListener("click", () => this.#beginAnew(), { signal });
    window.addEventListener("storage", () => this.#surroundings.onStored?.(), { signal });
    byId(this.#root, "question", HTMLElement).addEventListener(
      "question-next",
      () => this.#question.next(conversation.state, this.#view()),
      { signal },
    );
    this.#transcript.addEventListener("scroll", () => this.#showMore(), { signal, passive: true });
    for (const [id, act] of this.#buttons())
      byId(this.#root, id, HTMLButtonElement).addEventListener("click", act, { signal });
    for (const sample of this.#root.querySelectorAll("button[data-prompt]")) {
      const send = () => this.#sender.sendOnce(/** @type {HTMLElement} */ (sample).dataset.prompt ?? "");
      sample.addEventListener("click", send, { signal });
    }
    listenToKeys(this.#root, {
      cards: () => this.#transcript.cards,
      closeOpen: () => [this.#stopQuestion, this.#question].some((part) => part.closeOpen()) || this.#voice.turnOff(),
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
      ["reconnect", () => this.#opener.reconnect()],
      ["reload", () => location.reload()],
      ["notice-close", () => this.#conversation.dismissNotice()],
      ["help-open", () => this.#help.showModal()],
      ["resume", () => this.#conversation.resume()],
      ["latest", () => this.#follow()],
      ["earlier-show", () => this.#showEarlier()],
    ];
  }

  /**
   * Show the button to the newest line if there are lines below the screen. Scrolling also updates it, so that `Tab`
   * reaches it.
   */
  #showMore() {
    this.#latest.hidden = !this.#transcript.hasMore;
  }

  #follow() {
    this.#transcript.follow();
    writingPlace(this.#root).focus();
  }

  /** Start a new conversation, unless messages of the current one are still being sent. */
  #beginAnew() {
    if (!this.#conversation.hasUnsent) this.#surroundings.onBegin?.();
  }

  /** Load and show earlier messages. If none are left, their button disappears, so move the focus to the transcript. */
  async #showEarlier() {
    const count = await this.#conversation.showEarlier(this.#settings.messagesUrl);
    if (count === 0) return;
    this.#announcer.say({ text: this.#i18n.count("say_earlier", count), urgent: false });
    if (!this.#conversation.state.hasEarlier) this.#transcript.focus({ preventScroll: true });
  }

  /** @param {State} before @param {State} after */
  #changed(before, after) {
    if (askedCount(before) > 0 && askedCount(after) === 0) this.#announcer.calm();
    for (const text of withdrawnTexts(before, after, this.#i18n)) this.#announcer.takeBack(text);
    for (const announcement of announcementsOf(before, after, this.#i18n)) this.#announcer.say(announcement);
    for (const answer of spokenAnswers(before, after)) this.#voice.speak(answer);
    if (before.phase !== after.phase) this.#transcript.follow();
    this.#surroundings.onChanged?.(before, after);
    this.schedule();
  }

  /** Schedule a redraw for the next animation frame. */
  schedule() {
    if (this.#isScheduled) return;
    this.#isScheduled = true;
    requestAnimationFrame(() => {
      this.#isScheduled = false;
      drawWithFocus(this.#root, () => this.#render());
      this.#showMore();
    });
  }

  #view() {
    const { viewer, connection } = this.#conversation.state;
    const pageOf = (/** @type {string} */ id) => this.#settings.pageOf(id);
    const urls = { pageOf, fileUrl: this.#tray.pattern, resultUrl: this.#settings.resultUrl };
    return { i18n: this.#i18n, viewer, now: performance.now(), frozenAt: connection.frozenAt, ...urls };
  }

  #render() {
    const { state } = this.#conversation;
    const view = this.#view();
    this.#transcript.render(state, view);
    this.#layout.render(state);
    this.#notice.render(state, view);
    this.#connection.render(state, view);
    this.#question.render(state, view);
    this.#form.render(state, view);
    this.#bar.render(state, view);
    this.#queue.render(state, view);
    this.#background.render(state, view);
    this.#context.render(state, view);
    if (!isAtWork(state)) this.#stopQuestion.dismiss();
    this.#stopQuestion.dismissUnless(this.#question.asked);
    this.#composer.label(this.#i18n.text(activeTurn(state) ? "queue" : "send"));
    this.#surroundings.onRendered?.(state, view);
  }

  #tick() {
    if (document.visibilityState !== "visible") return;
    const { state } = this.#conversation;
    const view = this.#view();
    this.#connection.render(state, view);
    this.#bar.render(state, view);
    this.#question.tick(view);
    this.#form.tick(view);
    this.#loss.tick(state, view);
    if (!isAtWork(state)) return;
    this.#background.render(state, view);
    this.#transcript.tick(view);
    for (const crossing of this.#tiers.crossings(state, view.now, this.#i18n)) this.#announcer.say(crossing);
  }
}
