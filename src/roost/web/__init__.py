"""The portal's files: ES modules, styles and pages, and the two libraries that they use.

The routes that serve them are in ``roost.server``. Nothing here knows of clusters, jobs or users.
"""
