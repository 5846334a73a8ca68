// What slide-level models say of the slide or its patient.
import { box } from "./elements";
import { tableOf } from "./facts";
import type { Answer } from "../types";

const RESEARCH_USE = "Research use only. Not for diagnosis.";

export class AnswersPanel {
  readonly element = box("answers facts");

  update(answers: Answer[]): void {
    const texts = answers.map(({ model, about, rows }) => box("answer", box("name", model), box("hint", about), ...(rows.length ? [tableOf(rows, `Predictions of ${model}`)] : [])));
    this.element.replaceChildren(...texts, ...(texts.length ? [box("hint", RESEARCH_USE)] : []));
  }
}
