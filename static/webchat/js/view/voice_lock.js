/** The lock of the one microphone: the chat whose button was pressed last has it while it is in sight. */

const NAME = "webchat-voice";

/** One chat's part of the lock. An insecure page has no locks, and no microphone. */
export class VoiceLock {
  #onLost;
  #request = new AbortController();

  /** @param {() => void} onLost another one has taken it */
  constructor(onLost) {
    this.#onLost = onLost;
  }

  /** Take it from whoever has it. */
  take() {
    void this.#ask({ steal: true }, () => undefined);
  }

  /** Wait until nobody has it. @param {() => void} onHeld */
  wait(onHeld) {
    void this.#ask({}, onHeld);
  }

  /** Let it go, or wait no longer. */
  release() {
    this.#request.abort();
  }

  /** @param {LockOptions} options @param {() => void} onHeld */
  async #ask(options, onHeld) {
    this.release();
    this.#request = new AbortController();
    const { signal } = this.#request;
    const hold = () => {
      if (signal.aborted) return undefined;
      onHeld();
      return new Promise((resolve) => signal.addEventListener("abort", resolve));
    };
    try {
      await navigator.locks?.request(NAME, options.steal ? options : { signal }, hold);
    } catch (error) {
      // Where a browser allows no storage, it refuses all locks: there each chat listens for itself.
      const isStolen = error instanceof DOMException && error.name === "AbortError";
      if (isStolen && !signal.aborted) this.#onLost();
    }
  }
}
