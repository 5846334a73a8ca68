// What has to wait for the page: the slide is shown before it.

export class PageWait {
  /** Whether another slide is being opened in this one's place. */
  isLeaving = false;
  private hasFollowed = false;
  private waiting: (() => void)[] = [];

  /** Do something with the page: at once, or when it is drawn. */
  then(act: () => void): void {
    if (this.hasFollowed && !this.isLeaving) {
      act();
    } else {
      this.waiting.push(act);
    }
  }

  followed(): void {
    this.hasFollowed = true;
    this.waiting.splice(0).forEach((act) => act());
  }

  /** Let another page do what has waited for this one. */
  passTo(other: PageWait): void {
    this.waiting.splice(0).forEach((act) => other.then(act));
  }
}
