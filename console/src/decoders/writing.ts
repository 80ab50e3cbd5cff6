/** What all writers of binary data share: growing bytes, and errors that say where JSON does not fit. */

import { t } from "../texts";

export class Writer {
  private buffer = new Uint8Array(256);
  private used = 0;

  get length(): number {
    return this.used;
  }

  /** Only made shorter. */
  set length(length: number) {
    this.used = Math.min(this.used, length);
  }

  done(): Uint8Array {
    return this.buffer.slice(0, this.used);
  }

  byte(value: number): void {
    this.reserve(1);
    this.buffer[this.used++] = value;
  }

  bytes(value: Uint8Array): void {
    this.reserve(value.length);
    this.buffer.set(value, this.used);
    this.used += value.length;
  }

  float(value: number, size: 4 | 8): void {
    const view = new DataView(new ArrayBuffer(size));
    if (size === 4) view.setFloat32(0, value, true);
    else view.setFloat64(0, value, true);
    this.bytes(new Uint8Array(view.buffer));
  }

  fixed(value: bigint, size: 4 | 8): void {
    const view = new DataView(new ArrayBuffer(size));
    if (size === 4) view.setUint32(0, Number(BigInt.asUintN(32, value)), true);
    else view.setBigUint64(0, BigInt.asUintN(64, value), true);
    this.bytes(new Uint8Array(view.buffer));
  }

  varint(value: bigint): void {
    let left = BigInt.asUintN(64, value);
    for (; left > 127n; left >>= 7n) this.byte(Number(left & 127n) | 128);
    this.byte(Number(left));
  }

  zigzag(value: bigint): void {
    this.varint((value << 1n) ^ (value >> 63n));
  }

  private reserve(more: number): void {
    if (this.used + more <= this.buffer.length) return;
    const larger = new Uint8Array(Math.max(this.buffer.length * 2, this.used + more));
    larger.set(this.buffer.subarray(0, this.used));
    this.buffer = larger;
  }
}

export function wrong(path: string, expected: string): Error {
  return new Error(t.produce.wrongType(path, expected));
}

export function objectAt(value: unknown, path: string): Record<string, unknown> {
  if (value === null || typeof value !== "object" || Array.isArray(value)) throw wrong(path, "object");
  return value as Record<string, unknown>;
}

/** An integer; nothing if it is none, or one that JavaScript has rounded. */
export function integerOf(value: unknown): bigint | undefined {
  if (typeof value === "bigint") return value;
  return Number.isSafeInteger(value) ? BigInt(value as number) : undefined;
}

const NOT_FINITE: Record<string, number> = { NaN: NaN, Infinity: Infinity, "-Infinity": -Infinity };

export function numberOf(value: unknown, path: string): number {
  if (typeof value === "number" || typeof value === "bigint") return Number(value);
  const named = typeof value === "string" ? NOT_FINITE[value] : undefined;
  if (named === undefined) throw wrong(path, "number");
  return named;
}

/** Bytes from a text with a character for each; nothing if it has others. */
export function fromLatin(text: string): Uint8Array | undefined {
  const bytes = new Uint8Array(text.length);
  for (let at = 0; at < text.length; at++) {
    const code = text.charCodeAt(at);
    if (code > 255) return undefined;
    bytes[at] = code;
  }
  return bytes;
}
