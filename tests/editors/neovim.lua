-- Drives Neovim with nvim-dap through a session, as a user would: `dap` is configured by the README's lines.
-- In the environment: PROGRAM, LINE (of the breakpoint), CONFIGURATION (those lines, a file), REPORT (a file).

local dap
local report = assert(io.open(vim.env.REPORT, "w"))

local function tell(...)
  report:write(table.concat({ ... }, " "), "\n")
  report:flush()
end

local function wait(what, condition)
  if not vim.wait(tonumber(vim.env.SECONDS) * 1000, condition, 20) then
    error("waited for " .. what)
  end
end

local function local_variable(frame, name)
  for _, scope in ipairs(frame.scopes or {}) do
    for _, variable in ipairs(scope.variables or {}) do
      if variable.name == name then
        return variable.value
      end
    end
  end
end

-- The frame of a stop, once its variables are there; nil when the session is over.
local function stopped()
  local function frame()
    local session = dap.session()
    return session and session.stopped_thread_id and session.current_frame
  end
  wait("a stop", function()
    return not dap.session() or (frame() and local_variable(frame(), "y"))
  end)
  return frame()
end

local function drive()
  dofile(vim.env.CONFIGURATION)
  dap = require("dap")
  vim.cmd.edit(vim.env.PROGRAM)
  vim.api.nvim_win_set_cursor(0, { tonumber(vim.env.LINE), 0 })
  dap.set_breakpoint()
  dap.run(dap.configurations.python[1])
  wait("the session", dap.session)
  local frame = stopped()
  tell("stopped", frame.line, frame.name, local_variable(frame, "y"))
  local id = frame.id
  dap.step_over()
  wait("a step", function()
    local now = stopped()
    return now == nil or now.id ~= id
  end)
  tell("stepped", stopped().line)
  dap.continue()
  wait("the end", function()
    return not dap.session()
  end)
  tell("ended")
end

local fine, problem = pcall(drive)
if not fine then
  tell("problem", problem, vim.fn.execute("messages"))
end
vim.cmd("qall!")
