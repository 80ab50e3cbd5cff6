"""Operations for backups."""

from goqueue.broker.gate.areas.backups.area import BackupsArea, Cut, Held, Piece, Span

__all__ = ["BackupsArea", "Cut", "Held", "Piece", "Span"]
