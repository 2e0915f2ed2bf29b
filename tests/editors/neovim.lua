-- Drives Neovim with nvim-dap through a session, as a user would: `dap` is configured by the guide's lines.
-- In the environment: PROGRAM, LINE (of the breakpoint, or 0), CONFIGURATION (those lines, a file), NUMBER (of the one of
-- them that is run), REPORT (a file), SECONDS (to wait for one thing).

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

-- The frame of a stop, nil while the program runs.
local function stopped()
  local session = dap.session()
  return session and session.stopped_thread_id and session.current_frame
end

local function is_loaded(frame)
  local scope = (frame.scopes or {})[1]
  return scope and scope.variables
end

-- Why it stopped last.
local why = ""

local function drive()
  dofile(vim.env.CONFIGURATION)
  dap = require("dap")
  dap.listeners.before.event_stopped.driver = function(_, body)
    why = body.description or body.reason
  end
  local configuration = dap.configurations.python[tonumber(vim.env.NUMBER)]
  vim.cmd.edit(vim.env.PROGRAM)
  if vim.env.LINE ~= "0" then
    vim.api.nvim_win_set_cursor(0, { tonumber(vim.env.LINE), 0 })
    dap.set_breakpoint()
  end
  dap.run(configuration)
  wait("the session", dap.session)
  wait("a stop", function()
    return not dap.session() or (stopped() and local_variable(stopped(), "y"))
  end)
  local frame = stopped()
  tell("stopped", frame.line, frame.name, local_variable(frame, "y"))
  local id = frame.id
  dap.step_over()
  wait("a step", function()
    return not dap.session() or (stopped() and stopped().id ~= id)
  end)
  tell("stepped", stopped().line)
  if configuration.request == "attach" then
    dap.disconnect({ terminateDebuggee = false })
  end
  local shown = stopped() and stopped().id
  if configuration.request == "launch" then
    dap.continue()
  end
  wait("the end", function()
    local frame = stopped()
    if frame and frame.id ~= shown and configuration.request == "launch" and is_loaded(frame) then
      shown = frame.id
      tell("again", frame.line, frame.name, local_variable(frame, "y") or "", why)
      dap.continue()
    end
    return not dap.session()
  end)
  tell("ended")
end

local fine, problem = pcall(drive)
if not fine then
  tell("problem", problem, vim.fn.execute("messages"))
end
vim.cmd("qall!")
