"""Access rules: principals, their keys and passwords, and the roles that grant them actions.

    access file -> format -> core.Access -> core.Permit -> grants.TopicFilters
                     file: reads it again when it changes

The rules (grants, core, format) are pure; keys, passwords and file use the disk or chance. A client
imports `keys` only, so nothing is imported here.
"""
