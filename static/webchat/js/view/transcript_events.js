/** What a person asks for in the transcript, from its events to one call each. */

import { fetchResult } from "../net/fetch_result.js";
import { attachmentsOf } from "../state/turns.js";

/**
 * @typedef {Readonly<{
 *   conversation: import("../state/conversation.js").Conversation,
 *   sender: import("./message_sender.js").MessageSender,
 *   transcript: import("./transcript.js").ChatTranscriptElement,
 *   settings: import("./chat_settings.js").ChatSettings,
 * }>} Parts
 * @typedef {Readonly<{turnId: string, toolId: string}>} CallPlace
 * @typedef {Readonly<{
 *   cancelTool: (place: CallPlace) => void,
 *   extend: (detail: CallPlace & {extendMs: number}) => void,
 *   stopWork: (detail: {turnId: string}) => void,
 *   showResult: (detail: CallPlace & {tell: (text: string|null) => void}) => void,
 *   sendAgain: (detail: {text: string, attachments?: ReadonlyArray<import("../state/types.js").Attachment>}) => void,
 *   edit: (detail: import("./message_editor.js").Edit) => void,
 *   continueTurn: (detail: {turnId: string}) => void,
 * }>} Wishes
 */

/** @type {ReadonlyArray<[string, keyof Wishes]>} */
const EVENTS = [
  ["tool-call-cancel", "cancelTool"],
  ["tool-call-extend", "extend"],
  ["tool-call-stop-work", "stopWork"],
  ["tool-call-result", "showResult"],
  ["turn-retry", "sendAgain"],
  ["turn-continue", "continueTurn"],
  ["message-edit", "edit"],
];

/** @param {HTMLElement} transcript @param {Wishes} wishes @param {AbortSignal} signal */
export function listenToTranscript(transcript, wishes, signal) {
  for (const [type, wish] of EVENTS) {
    transcript.addEventListener(type, (event) => wishes[wish](/** @type {CustomEvent} */ (event).detail), { signal });
  }
}

/** @param {Parts} parts @returns {Wishes} */
export function wishesOf({ conversation, sender, transcript, settings }) {
  return {
    cancelTool: ({ turnId, toolId }) => conversation.cancelTool(turnId, toolId),
    extend: ({ turnId, toolId, extendMs }) => conversation.extend(turnId, toolId, extendMs),
    stopWork: ({ turnId }) => conversation.stopWork(turnId),
    showResult: ({ turnId, toolId, tell }) => void fetchResult(settings.resultUrl, turnId, toolId).then(tell),
    sendAgain: ({ text, attachments }) => sender.sendOnce(text, attachments),
    edit: ({ turnId, text, tell }) => {
      const turn = conversation.state.turns.find(({ id }) => id === turnId);
      tell(sender.send(text, { replaces: turnId, attachments: attachmentsOf(turn) }));
    },
    continueTurn: ({ turnId }) => {
      conversation.continueTurn(turnId);
      transcript.showNext();
    },
  };
}
