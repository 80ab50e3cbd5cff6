/** JavaScript filters in a worker, which is ended when it takes too long. */

import { t } from "../texts";

declare const FILTER_WORKER: string;

const FILTER_MS_MAX = 2000;
const ALLOWED = "goqueue.filters";
const ALLOWED_MAX = 50;

function allowed(): string[] {
  return JSON.parse(sessionStorage.getItem(ALLOWED) ?? "[]") as string[];
}

/** Whether the person has written or allowed a script in this tab; one that came in a link waits. */
export function mayRun(code: string): boolean {
  return code === "" || allowed().includes(code);
}

export function allow(code: string): void {
  if (!mayRun(code)) sessionStorage.setItem(ALLOWED, JSON.stringify([...allowed(), code].slice(-ALLOWED_MAX)));
}

interface Answer {
  id: number;
  passed: boolean[];
  error: string;
}

export class MessageFilter {
  private worker: Worker | undefined;
  private next = 0;

  constructor(private readonly code: string) {}

  run(messages: unknown[]): Promise<Answer> {
    const worker = (this.worker ??= new Worker(FILTER_WORKER));
    const id = this.next++;
    return new Promise((resolve, reject) => {
      const timer = window.setTimeout(() => {
        this.close();
        reject(new Error(t.filter.tooSlow(FILTER_MS_MAX / 1000)));
      }, FILTER_MS_MAX);
      worker.onmessage = ({ data }: MessageEvent<Answer>) => {
        if (data.id !== id) return;
        window.clearTimeout(timer);
        resolve(data);
      };
      worker.onerror = (event) => reject(new Error(event.message || t.filter.failed));
      worker.postMessage({ id, code: this.code, messages });
    });
  }

  close(): void {
    this.worker?.terminate();
    this.worker = undefined;
  }
}
