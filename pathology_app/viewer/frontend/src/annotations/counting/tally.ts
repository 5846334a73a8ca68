// Numbers of a count by class: shares with Wilson's interval, and densities (as pipeline/review/counting/tally.py).
import { contains } from "../drawing/shapes";
import type { ClassTally, Content, CountTally, RegionAreas } from "../types";

/** 97.5 % quantile of the normal distribution. */
const Z = 1.959963984540054;

/** Wilson's 95 % interval of a share of at least one object. */
export function wilsonInterval(number: number, among: number): [number, number] {
  const share = number / among;
  const centre = share + Z ** 2 / (2 * among);
  const half = Z * Math.sqrt((share * (1 - share)) / among + Z ** 2 / (4 * among ** 2));
  const scale = 1 + Z ** 2 / among;
  return [Math.max(0, (centre - half) / scale), Math.min(1, (centre + half) / scale)];
}

export function classTallies(numbers: ReadonlyMap<string, number>, areas: RegionAreas): ClassTally[] {
  const total = [...numbers.values()].reduce((sum, number) => sum + number, 0);
  return [...numbers].filter(([, number]) => number > 0).sort(([one], [other]) => (one < other ? -1 : 1)).map(([class_name, number]) => {
    const [share_low, share_high] = wilsonInterval(number, total);
    const per = (area: number | null): number | null => (area ? number / area : null);
    return { class_name, number, share: number / total, share_low, share_high, per_mm2: per(areas.scanned_mm2), per_mm2_tissue: per(areas.tissue_mm2) };
  });
}

/** The tally of one count from its marks. */
export function tallyOf(name: string, count: Content & { id: string; author: string; changed_utc: string }, marks: Content[], areas: RegionAreas): CountTally {
  const numbers = new Map<string, number>();
  let outside = 0;
  for (const { geometry, class: class_name } of marks) {
    if (geometry.type === "Point" && contains(count.geometry, { x: geometry.coordinates[0], y: geometry.coordinates[1] }, 0)) {
      numbers.set(class_name ?? "", (numbers.get(class_name ?? "") ?? 0) + 1);
    } else {
      outside++;
    }
  }
  return { id: count.id, name, ...areas, classes: classTallies(numbers, areas), outside, author: count.author, changed_utc: count.changed_utc };
}

/** The tally with marks added to or taken from classes since it was made. */
export function withChanges(tally: CountTally, changes: ReadonlyMap<string, number>): CountTally {
  if (![...changes.values()].some((change) => change !== 0)) {
    return tally;
  }
  const numbers = new Map(tally.classes.map(({ class_name, number }) => [class_name, number]));
  changes.forEach((change, name) => numbers.set(name, Math.max(0, (numbers.get(name) ?? 0) + change)));
  return { ...tally, classes: classTallies(numbers, tally) };
}
