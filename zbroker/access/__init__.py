"""Access rules: principals, their keys and passwords, and the roles that grant them actions.

    access file -> format -> core.Access -> permits.Permit -> content.Content
                     file: reads it again when it changes

What decides is pure (patterns, content, grants, permits, core, explaining, format, lines); keys,
passwords and file touch the disk or chance. Imported module by module: a client needs only `keys`.
"""
