// Times of the server as people read them.

export function timeText(utc: string): string {
  const time = new Date(utc);
  return Number.isNaN(time.valueOf()) ? utc : time.toLocaleString(undefined, { dateStyle: "medium", timeStyle: "short" });
}
