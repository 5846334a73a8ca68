"""The part of the dock that draws and saves annotations."""

from __future__ import annotations

from collections.abc import Callable

from qtpy.QtCore import QEvent, QObject
from qtpy.QtWidgets import QComboBox, QFormLayout, QHBoxLayout, QLabel, QLineEdit, QMessageBox, QPushButton, QWidget

from pathology_app.desktop.notes import SlideNotes
from pathology_app.html.text import as_text
from training.foundation.errors import GemslideError
from training.foundation.words.counts import counted


class NotesBox(QWidget):
    """Class and note of the selected or next annotations; Save. It asks before a window with unsaved changes closes."""

    def __init__(self, chosen: Callable[[], SlideNotes | None], all_of_them: Callable[[], list[SlideNotes]]) -> None:
        """Args: chosen: returns the shown slide's notes. all_of_them: returns those of every slide in the viewer."""
        super().__init__()
        self._chosen, self._all = chosen, all_of_them
        form = QFormLayout(self)
        form.setContentsMargins(0, 0, 0, 0)
        form.setFieldGrowthPolicy(QFormLayout.FieldGrowthPolicy.AllNonFixedFieldsGrow)
        self.class_box, self.class_edit, self.note = QComboBox(), QLineEdit(), QLineEdit()
        self.class_box.setEditable(True)
        self.class_box.setLineEdit(self.class_edit)
        self.note.setPlaceholderText("note on the selection; Enter")
        self.class_box.setAccessibleName("Class of the annotation")
        self.note.setAccessibleName("Note of the annotation")
        self.draw_button, self.save_button = QPushButton("Draw"), QPushButton("Save annotations")
        self.message = QLabel()
        self.message.setWordWrap(True)
        form.addRow("Class", self.class_box)
        form.addRow("Note", self.note)
        buttons = QHBoxLayout()
        for button in (self.draw_button, self.save_button):
            button.setMinimumHeight(32)
            buttons.addWidget(button)
        form.addRow(buttons)
        form.addRow(self.message)
        self.class_box.activated.connect(lambda _: self._class_given())
        self.class_edit.editingFinished.connect(lambda: self._class_given() if self.class_edit.isModified() else None)
        self.note.editingFinished.connect(lambda: self._note_given() if self.note.isModified() else None)
        self.draw_button.clicked.connect(lambda: self._draw())
        self.save_button.clicked.connect(lambda: self.save())
        self._watched: QObject | None = None

    def show_notes(self) -> None:
        """Read the chosen slide's annotations if none are drawn yet, and offer its classes."""
        notes = self._chosen()
        if notes is None:
            return
        if not notes.layers():
            self._said(notes.read)
        self.class_box.clear()
        self.class_box.addItems(["", *notes.colours])
        if notes.left_out:
            left_out = counted(notes.left_out, "more annotation is", "more annotations are")
            self._say(f"{left_out} stored but not drawn here: view the rest in the browser.")
        if self._watched is None:
            self._watched = self.window()
            self._watched.installEventFilter(self)

    def save(self) -> bool:
        """Save the chosen slide's annotations. Returns whether it worked."""
        notes = self._chosen()
        return notes is not None and self._save(notes)

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        """Ask before a window with unsaved annotations closes."""
        if event.type() == QEvent.Type.Close and not self._may_close():
            event.ignore()
            return True
        return False

    def _may_close(self) -> bool:
        unsaved = [notes for notes in self._all() if notes.unsaved()]
        if not unsaved:
            return True
        buttons = QMessageBox.StandardButton
        number = sum(len(notes.unsaved()) for notes in unsaved)
        question = f"{counted(number, 'annotation change is', 'annotation changes are')} not saved."
        answer = self.ask(question, buttons.Save | buttons.Discard | buttons.Cancel)
        if answer == buttons.Save:
            for notes in unsaved:
                self._save(notes)
            return not any(notes.unsaved() for notes in unsaved)
        return bool(answer == buttons.Discard)

    def ask(self, question: str, buttons: QMessageBox.StandardButton) -> QMessageBox.StandardButton:
        """Ask a question before the window closes."""
        return QMessageBox.question(self, "Annotations", question, buttons)

    def _draw(self) -> None:
        notes = self._chosen()
        if notes is None:
            return
        if not notes.layers():
            notes.draw()
        shapes = notes.layers()[0]
        notes.viewer.layers.selection.active = shapes
        shapes.mode = "add_polygon"
        notes.draw_next_as(self.class_edit.text().strip())
        self._say(
            "Click corners, double-click to finish. More tools are at the top left; points have a separate layer."
        )

    def _class_given(self) -> None:
        """Apply the class to the selection and to the next annotations drawn."""
        notes, class_name = self._chosen(), self.class_edit.text().strip()
        self.class_edit.setModified(False)
        if notes is not None:
            selected = notes.describe(class_name=class_name)
            notes.draw_next_as(class_name)
            self._say(f"{selected} selected: {class_name or 'without a class'}. Not saved yet." if selected else "")

    def _note_given(self) -> None:
        notes, note = self._chosen(), self.note.text().strip()
        self.note.setModified(False)
        selected = notes.describe(note=note) if notes is not None else 0
        if not selected:
            self._say("Select an annotation first (arrow tool), then press Enter in the note.")
            return
        self.note.clear()
        self._say(f"Note added to {selected} selected. Not saved yet.")

    def _save(self, notes: SlideNotes) -> bool:
        return self._said(lambda: self._say(notes.save()))

    def _said(self, work: Callable[[], None]) -> bool:
        try:
            work()
        except GemslideError as error:
            self._say(str(error))
            return False
        return True

    def _say(self, text: str) -> None:
        self.message.setText(as_text(text))
