/** Reading bytes in order, with an error that says where they end too early. */

export class Unreadable extends Error {}

const UTF8 = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

export class Reader {
  at = 0;
  private readonly view: DataView;

  constructor(readonly bytes: Uint8Array) {
    this.view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  }

  get left(): number {
    return this.bytes.length - this.at;
  }

  take(length: number): Uint8Array {
    if (length < 0 || length > this.left) throw new Unreadable(`${length} bytes are needed at byte ${this.at}, and ${this.left} are left`);
    this.at += length;
    return this.bytes.subarray(this.at - length, this.at);
  }

  byte(): number {
    return this.take(1)[0] as number;
  }

  number(size: 1 | 2 | 4, isSigned = false): number {
    const at = this.at;
    this.take(size);
    if (size === 1) return isSigned ? this.view.getInt8(at) : this.view.getUint8(at);
    if (size === 2) return isSigned ? this.view.getInt16(at) : this.view.getUint16(at);
    return isSigned ? this.view.getInt32(at) : this.view.getUint32(at);
  }

  long(isSigned = false, isLittle = false): bigint {
    this.take(8);
    return isSigned ? this.view.getBigInt64(this.at - 8, isLittle) : this.view.getBigUint64(this.at - 8, isLittle);
  }

  float(size: 4 | 8, isLittle = false): number {
    this.take(size);
    return size === 4 ? this.view.getFloat32(this.at - 4, isLittle) : this.view.getFloat64(this.at - 8, isLittle);
  }

  text(length: number): string {
    return utf8(this.take(length));
  }

  /** A variable-length integer of at most ten bytes. */
  varint(): bigint {
    let value = 0n;
    for (let shift = 0n; shift < 70n; shift += 7n) {
      const byte = this.byte();
      value |= BigInt(byte & 127) << shift;
      if (byte < 128) return value;
    }
    throw new Unreadable(`the variable-length number before byte ${this.at} has more than ten bytes`);
  }

  zigzag(): bigint {
    const value = BigInt.asUintN(64, this.varint());
    return (value >> 1n) ^ -(value & 1n);
  }
}

export function utf8(bytes: Uint8Array): string {
  try {
    return UTF8.decode(bytes);
  } catch {
    throw new Unreadable("it is not valid UTF-8");
  }
}

/** A number where that is exact. */
export function integer(value: bigint): number | bigint {
  const small = Number(value);
  return Number.isSafeInteger(small) ? small : value;
}

export function fromBase64(text: string): Uint8Array {
  const packed = atob(text);
  const bytes = new Uint8Array(packed.length);
  for (let at = 0; at < packed.length; at++) bytes[at] = packed.charCodeAt(at);
  return bytes;
}

const CHUNK = 8192;

export function toBase64(bytes: Uint8Array): string {
  return btoa(latin(bytes));
}

/** A text with a character for each byte. */
export function latin(bytes: Uint8Array): string {
  let text = "";
  for (let at = 0; at < bytes.length; at += CHUNK) text += String.fromCharCode(...bytes.subarray(at, at + CHUNK));
  return text;
}

export function hexOf(bytes: Uint8Array): string {
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

export function fromHex(text: string): Uint8Array {
  return Uint8Array.from({ length: text.length / 2 }, (_unused, at) => parseInt(text.slice(at * 2, at * 2 + 2), 16));
}

const HEX_BYTES_MAX = 64 * 1024;

/** Offsets, hexadecimal and ASCII, sixteen bytes a line. */
export function hexDump(bytes: Uint8Array): string {
  const lines = [];
  for (let at = 0; at < Math.min(bytes.length, HEX_BYTES_MAX); at += 16) {
    const line = [...bytes.subarray(at, at + 16)];
    const hex = line.map((byte) => byte.toString(16).padStart(2, "0")).join(" ");
    const ascii = line.map((byte) => (byte >= 32 && byte < 127 ? String.fromCharCode(byte) : ".")).join("");
    lines.push(`${at.toString(16).padStart(8, "0")}  ${hex.padEnd(47)}  ${ascii}`);
  }
  if (bytes.length > HEX_BYTES_MAX) lines.push(`… ${bytes.length - HEX_BYTES_MAX} more bytes`);
  return lines.join("\n");
}
