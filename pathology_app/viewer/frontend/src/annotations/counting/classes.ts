// Classes of counted objects, chosen by the keys 1 to 9 and remembered by the browser.

export const PRESETS: readonly [string, readonly string[]][] = [
  ["Ki-67", ["positive", "negative"]],
  ["Mitoses", ["mitosis", "mimic"]],
];
const MOST = 9;
const KEY = "gemslide/count-classes";

type Store = Pick<Storage, "getItem" | "setItem">;

export class CountClasses {
  names: string[];
  private index = 0;

  constructor(private readonly store: Store | null) {
    this.names = read(store) ?? [...PRESETS[0]![1]];
  }

  get current(): string {
    return this.names[this.index] ?? this.names[0]!;
  }

  /** @param number 1 to 9. False if there is no such class. */
  choose(number: number): boolean {
    if (number < 1 || number > this.names.length) {
      return false;
    }
    this.index = number - 1;
    return true;
  }

  use(names: readonly string[]): void {
    [this.names, this.index] = [[...names].slice(0, MOST), 0];
    this.keep();
  }

  /** Add a class, or choose the one of that name. */
  add(name: string): boolean {
    const present = this.names.indexOf(name);
    if (present < 0 && this.names.length >= MOST) {
      return false;
    }
    if (present < 0) {
      this.names.push(name);
      this.keep();
    }
    this.index = this.names.indexOf(name);
    return true;
  }

  private keep(): void {
    try {
      this.store?.setItem(KEY, JSON.stringify(this.names));
    } catch {
      // The storage is full or forbidden: the classes last as long as the page.
    }
  }
}

function read(store: Store | null): string[] | null {
  try {
    const names = JSON.parse(store?.getItem(KEY) ?? "null") as unknown;
    const isList = Array.isArray(names) && names.length > 0 && names.every((name) => typeof name === "string" && name.length > 0 && name.length <= 100);
    return isList ? (names as string[]).slice(0, MOST) : null;
  } catch {
    return null;
  }
}
