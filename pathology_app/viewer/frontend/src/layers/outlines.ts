// Edges between cells that reach a threshold and cells that do not, as straight runs along the cells' sides.

/** Runs along one direction: `at` is the line, from `start` to `end`, all in cells; stored as consecutive triples. */
export interface Runs {
  /** at, start, end; at, start, end; … in order of `at`. */
  values: Int32Array;
}

export interface Outlines {
  horizontal: Runs;
  vertical: Runs;
}

/** @param codes one per cell, row by row; a code of at least `least` is inside. */
export function outlinesOf(codes: Uint8Array, width: number, height: number, least: number): Outlines {
  const inside = (x: number, y: number): boolean =>
    x >= 0 && y >= 0 && x < width && y < height && codes[y * width + x]! >= least;
  return {
    horizontal: runs(height, width, (y, x) => inside(x, y - 1) !== inside(x, y)),
    vertical: runs(width, height, (x, y) => inside(x - 1, y) !== inside(x, y)),
  };
}

function runs(lines: number, along: number, isEdge: (line: number, at: number) => boolean): Runs {
  const values: number[] = [];
  for (let line = 0; line <= lines; line++) {
    let start = -1;
    for (let at = 0; at <= along; at++) {
      const edge = at < along && isEdge(line, at);
      if (edge && start < 0) {
        start = at;
      } else if (!edge && start >= 0) {
        values.push(line, start, at);
        start = -1;
      }
    }
  }
  return { values: Int32Array.from(values) };
}

/** Add the runs between two lines to a path; `cell` is the side of a cell in the path's units. */
export function addRuns(path: Path2D, { values }: Runs, cell: number, isVertical: boolean, from: number, to: number): void {
  for (let index = firstAtLeast(values, from); index < values.length && values[index]! <= to; index += 3) {
    const [at, start, end] = [values[index]! * cell, values[index + 1]! * cell, values[index + 2]! * cell];
    if (isVertical) {
      path.moveTo(at, start);
      path.lineTo(at, end);
    } else {
      path.moveTo(start, at);
      path.lineTo(end, at);
    }
  }
}

function firstAtLeast(values: Int32Array, line: number): number {
  let [low, high] = [0, values.length / 3];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (values[3 * middle]! < line) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return 3 * low;
}
