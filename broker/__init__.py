"""Everything on the wire: topics, messages, the chunk stream, the client link, the broker."""

import os
from typing import Final

# What is taken from the wire is for pydantic and these models to say, and not for plugins that some
# other package has brought; to look for them costs 20 ms at each start, in a large environment.
NO_PLUGINS: Final = ("PYDANTIC_DISABLE_PLUGINS", "__all__")
os.environ.setdefault(*NO_PLUGINS)
