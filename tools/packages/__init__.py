"""Checks of what is published: wheels, images and release notes."""
