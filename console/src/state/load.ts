/** Data of a page: loaded, refreshed while one looks, kept and marked as old while it cannot be had. */

import { useCallback, useEffect, useRef, useState } from "preact/hooks";
import { isAbort, signInNeeded, credentials } from "../api/client";

export interface Loaded<T> {
  data: T | undefined;
  error: Error | undefined;
  isLoading: boolean;
  loadedAt: number;
  reload: () => void;
}

const RETRY_MS = 3000;

/** Calls `load` when `dependencies` change, and every `everyMs` while the page is visible. */
export function useLoad<T>(load: (signal: AbortSignal) => Promise<T>, dependencies: unknown[], everyMs = 0): Loaded<T> {
  const [state, setState] = useState<Omit<Loaded<T>, "reload">>({ data: undefined, error: undefined, isLoading: true, loadedAt: 0 });
  const [turn, setTurn] = useState(0);
  const latest = useRef(load);
  latest.current = load;
  const reload = useCallback(() => setTurn((now) => now + 1), []);
  useEffect(() => {
    const abort = new AbortController();
    let timer = 0;
    const again = (ms: number) => {
      timer = window.setTimeout(() => (document.hidden ? again(ms) : void run()), ms);
    };
    const run = async () => {
      try {
        const data = await latest.current(abort.signal);
        if (abort.signal.aborted) return;
        setState({ data, error: undefined, isLoading: false, loadedAt: Date.now() });
        if (everyMs) again(everyMs);
      } catch (error) {
        if (abort.signal.aborted || isAbort(error)) return;
        setState((old) => ({ ...old, error: error as Error, isLoading: false }));
        if ((everyMs || (error as { retryable?: boolean }).retryable) && !signInNeeded.value) again(Math.max(everyMs, RETRY_MS));
      }
    };
    setState((old) => ({ ...old, isLoading: true }));
    void run();
    return () => {
      abort.abort();
      window.clearTimeout(timer);
    };
  }, [...dependencies, turn, everyMs, credentials.value]);
  return { ...state, reload };
}
